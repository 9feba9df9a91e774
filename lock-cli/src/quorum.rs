//! `lockctl quorum`: the nodes of a quorum.

use std::process::ExitCode;

use lock_core::{NodeVote, QuorumNode};
use serde_json::{Value, json};

use crate::exit::{Failure, NO};
use crate::options::{Quorum, Server};
use crate::{shown, unlock};

pub(crate) async fn run(server: &Server, command: &Quorum) -> Result<ExitCode, Failure> {
    match command {
        Quorum::Begin { nodes, anew, yes } => {
            let question = "It ends the waits of all nodes, and replaces what they have: while a program runs or a lock is held, two clients may then hold one lock. Begin anew?";
            if *anew && !yes && !unlock::is_meant(question)? {
                shown::say("the quorum stays as it is");
                return Ok(ExitCode::from(NO));
            }
            let begin = server.builder().begin_quorum(named(server, nodes)?);
            if *anew { begin.anew() } else { begin }.await?;
            shown::say(format_args!("the quorum has begun: its nodes vote"));
            Ok(ExitCode::SUCCESS)
        }
        Quorum::Status { nodes, json } => {
            let nodes = named(server, nodes)?;
            let nodes = server.builder().quorum_status(nodes).await?;
            Ok(show(&nodes, *json))
        }
    }
}

/// The nodes of the command line, or the URL of all.
fn named(server: &Server, nodes: &[String]) -> Result<Vec<String>, Failure> {
    if nodes.is_empty() {
        let url = server.url()?;
        if !url.contains("+quorum://") {
            let other = "the URL is not that of a quorum: state `redis+quorum://a,b,c`, or each node, as `redis://a`";
            return Err(Failure::Refused(other.to_owned()));
        }
        return Ok(vec![url.to_owned()]);
    }
    Ok(nodes.to_vec())
}

fn show(nodes: &[QuorumNode], as_json: bool) -> ExitCode {
    let votes = nodes
        .iter()
        .filter(|node| node.vote() == Ok(NodeVote::Votes));
    let votes = votes.count();
    if as_json {
        shown::say(format_args!(
            "{:#}",
            nodes.iter().map(object).collect::<Value>()
        ));
    } else {
        let rows: Vec<_> = nodes.iter().map(row).collect();
        shown::print(shown::table(&["NODE", "CLOCK", "VOTES"], &rows));
        let ahead = nodes.iter().filter_map(QuorumNode::clock_ahead_ms);
        let (least, most) = (ahead.clone().min(), ahead.max());
        let apart = most.unwrap_or(0) - least.unwrap_or(0);
        shown::say(format_args!(
            "{votes} of {} vote; the clocks are {apart} ms apart",
            nodes.len()
        ));
    }
    let majority = nodes.len() / 2 + 1;
    ExitCode::from(if votes >= majority { 0 } else { NO })
}

fn row(node: &QuorumNode) -> Vec<String> {
    let clock = node.clock_ahead_ms();
    let clock = clock.map_or("-".to_owned(), |ahead| format!("{ahead:+} ms"));
    vec![node.address().to_owned(), clock, words(node)]
}

fn words(node: &QuorumNode) -> String {
    match node.vote() {
        Ok(NodeVote::Votes) => "yes".to_owned(),
        Ok(NodeVote::Blank) => "no: it belongs to no quorum".to_owned(),
        Ok(NodeVote::Waits { left, is_new, .. }) => {
            let left = shown::time(left);
            if is_new {
                format!("in {left}: the quorum is new, and `lockctl quorum begin` ends the wait")
            } else {
                format!("in {left}: it has restarted, or has lost its data")
            }
        }
        Ok(_) => "no".to_owned(),
        Err(why) => format!("no: {why}"),
    }
}

fn object(node: &QuorumNode) -> Value {
    let left = match node.vote() {
        Ok(NodeVote::Waits { left, .. }) => Some(left.as_millis() as u64),
        _ => None,
    };
    json!({
        "address": node.address(),
        "votes": node.vote() == Ok(NodeVote::Votes),
        "votes_in_ms": left,
        "clock_ahead_ms": node.clock_ahead_ms(),
        "error": node.vote().err(),
    })
}

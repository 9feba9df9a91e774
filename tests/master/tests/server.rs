//! What the master does with time, connections and its own end, where a real server cannot be asked.

use lock_master::{Master, Output, Reply, Ttl};

const START: u64 = 1_700_000_000_000_000;

fn master() -> Master {
    let mut master = Master::new(START);
    for id in [1, 2, 3] {
        master.connect(id);
    }
    master
}

fn execute(master: &mut Master, command: &str) -> Reply {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    master.execute(&words).0
}

fn bytes(id: u64, text: &str) -> Output {
    Output::Bytes(id, text.as_bytes().to_vec())
}

#[test]
fn a_key_is_there_until_its_last_millisecond_is_over() {
    let mut master = master();
    execute(&mut master, "SET k v PX 10");
    assert_eq!(master.ttl(b"k"), Ttl::Micros(11_000));
    master.set_time(START + 10_999);
    assert_eq!(execute(&mut master, "PTTL k"), Reply::Int(0));
    assert_eq!(master.ttl_micros(b"k"), Some(1));
    master.set_time(START + 11_000);
    assert_eq!((master.ttl(b"k"), master.string(b"k")), (Ttl::Absent, None));
    assert_eq!(execute(&mut master, "PTTL k"), Reply::Int(-2));
}

#[test]
fn a_look_from_outside_removes_nothing() {
    let mut master = master();
    execute(&mut master, "SET k v PX 10");
    execute(&mut master, "SET endless v");
    master.set_time(START + 20_000);
    assert_eq!(master.keys(), [b"endless".to_vec()]);
    assert_eq!(master.ttl(b"endless"), Ttl::Endless);
    // A server counts what has expired until it is touched.
    assert_eq!(execute(&mut master, "DBSIZE"), Reply::Int(2));
    execute(&mut master, "GET k");
    assert_eq!(execute(&mut master, "DBSIZE"), Reply::Int(1));
}

#[test]
fn a_copy_of_the_data_replaces_what_came_later() {
    let mut master = master();
    execute(&mut master, "SET k old PX 10");
    execute(&mut master, "SET counter 7");
    let copy = master.data();
    execute(&mut master, "SET k new");
    execute(&mut master, "INCR counter");
    execute(&mut master, "RPUSH list v");
    master.replace(copy.clone());
    assert_eq!(master.string(b"k"), Some(&b"old"[..]));
    assert_eq!(master.ttl(b"k"), Ttl::Micros(11_000));
    assert_eq!(execute(&mut master, "INCR counter"), Reply::Int(8));
    assert!(master.list(b"list").is_empty());
    // Its ttls have gone on meanwhile, and it is a copy still.
    master.set_time(START + 11_000);
    master.replace(copy);
    assert_eq!(master.keys(), [b"counter".to_vec()]);
    assert_eq!(execute(&mut master, "INCR counter"), Reply::Int(8));
}

#[test]
fn requests_may_be_cut_anywhere() {
    let request = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    for cut in 0..request.len() {
        let mut master = master();
        let mut outputs = master.receive(1, &request[..cut]);
        outputs.extend(master.receive(1, &request[cut..]));
        let written = outputs.into_iter().flat_map(|output| match output {
            Output::Bytes(1, bytes) => bytes,
            other => panic!("{other:?}"),
        });
        assert_eq!(
            written.collect::<Vec<_>>(),
            b"+OK\r\n$2\r\n\r\n\r\n",
            "{cut}"
        );
    }
}

/// The server puts a client at the head of its list when there is something to write to it.
#[test]
fn the_client_that_was_given_something_last_is_written_to_first() {
    let mut master = master();
    master.receive(2, b"SUBSCRIBE a\r\n");
    master.receive(3, b"SUBSCRIBE b\r\n");
    let outputs = master.receive(1, b"PUBLISH a x\r\nPUBLISH b y\r\nPUBLISH a z\r\n");
    let message =
        |channel, text| format!("*3\r\n$7\r\nmessage\r\n$1\r\n{channel}\r\n$1\r\n{text}\r\n");
    let expected = [
        bytes(3, &message("b", "y")),
        bytes(1, ":1\r\n:1\r\n:1\r\n"),
        bytes(2, &(message("a", "x") + &message("a", "z"))),
    ];
    assert_eq!(outputs, expected);
}

#[test]
fn a_connection_ends_after_what_it_was_told() {
    let mut master = master();
    assert_eq!(
        master.receive(1, b"QUIT\r\nPING\r\n"),
        [bytes(1, "+OK\r\n"), Output::Close(1)]
    );
    let broken = "-ERR Protocol error: invalid multibulk length\r\n";
    assert_eq!(
        master.receive(2, b"*x\r\n"),
        [bytes(2, broken), Output::Close(2)]
    );
    assert!(master.receive(1, b"PING\r\n").is_empty());
    assert!(master.receive(2, b"PING\r\n").is_empty());
}

#[test]
fn a_client_that_is_gone_hears_nothing() {
    let mut master = master();
    master.receive(2, b"SUBSCRIBE a\r\n");
    master.disconnect(2);
    assert_eq!(master.receive(1, b"PUBLISH a x\r\n"), [bytes(1, ":0\r\n")]);
    master.connect(2);
    assert_eq!(
        (
            master.subscriptions(2),
            master.receive(1, b"PUBLISH a x\r\n")
        ),
        (0, vec![bytes(1, ":0\r\n")])
    );
}

#[test]
fn a_foreign_command_reaches_those_who_listen() {
    let mut master = master();
    master.receive(2, b"SUBSCRIBE a\r\n");
    let (reply, outputs) = master.execute(&[b"PUBLISH", b"a", b"x"]);
    assert_eq!(reply, Reply::Int(1));
    assert_eq!(
        outputs,
        [bytes(2, "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n")]
    );
}

#[test]
fn a_restart_forgets_all_but_the_data_that_are_kept() {
    let run_id = |master: &mut Master| match execute(master, "INFO server") {
        Reply::Verbatim(text) => {
            let mut lines = text.lines();
            lines
                .find_map(|line| line.strip_prefix("run_id:"))
                .map(str::to_owned)
        }
        other => panic!("{other:?}"),
    };
    let mut master = master();
    let first = run_id(&mut master).expect("a run id");
    assert_eq!(first.len(), 40);
    execute(&mut master, "SET k v PX 10");
    let Reply::Bulk(hash) = execute(&mut master, "SCRIPT LOAD return(1)") else {
        panic!("not loaded");
    };
    master.restart(true);
    assert_ne!(run_id(&mut master), Some(first));
    assert_eq!(master.ttl_micros(b"k"), Some(11_000));
    assert!(master.receive(1, b"PING\r\n").is_empty());
    let (reply, _) = master.execute(&[b"EVALSHA", &hash, b"0"]);
    assert_eq!(
        reply,
        Reply::Error("NOSCRIPT No matching script. Please use EVAL.".into())
    );
    master.restart(false);
    assert!(master.keys().is_empty());
}

#[test]
fn calls_are_counted_with_those_of_scripts() {
    let mut master = master();
    let Reply::Bulk(hash) = execute(&mut master, "SCRIPT LOAD return(redis.call('GET','k'))")
    else {
        panic!("not loaded");
    };
    master.execute(&[b"EVALSHA", &hash, b"0"]);
    execute(&mut master, "get k");
    execute(&mut master, "GET");
    let hash = String::from_utf8(hash).expect("a hash");
    assert_eq!(
        (
            master.commands(),
            master.calls("get"),
            master.calls("evalsha")
        ),
        (4, 2, 1)
    );
    assert_eq!(master.script_calls(&hash), 1);
    master.flush_scripts();
    assert_eq!(master.script_calls(&hash), 1);
}

#[test]
fn lists_and_hashes_are_seen_from_outside() {
    let mut master = master();
    execute(&mut master, "RPUSH l b a");
    execute(&mut master, "HSET h z 1 a 2 z 3");
    assert_eq!(master.list(b"l"), [b"b", b"a"]);
    let pair = |field: &str, value: &str| (field.as_bytes().to_vec(), value.as_bytes().to_vec());
    assert_eq!(master.hash(b"h"), [pair("z", "3"), pair("a", "2")]);
    assert!(master.list(b"h").is_empty() && master.hash(b"l").is_empty());
    master.flush_all();
    assert!(master.keys().is_empty());
}

#[test]
fn one_call_leaves_nothing_to_the_next() {
    let mut master = master();
    let count = "EVAL return(#KEYS*10+#ARGV)";
    assert_eq!(
        execute(&mut master, &format!("{count} 2 a b c")),
        Reply::Int(21)
    );
    assert_eq!(execute(&mut master, &format!("{count} 0")), Reply::Int(0));
    let script = b"KEYS[3] = 'x' ARGV[1] = 'y' return 0";
    master.execute(&[b"EVAL", script, b"2", b"a", b"b"]);
    assert_eq!(execute(&mut master, &format!("{count} 0")), Reply::Int(0));
}

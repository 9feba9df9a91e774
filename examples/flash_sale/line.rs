//! What the processes of a sale write to the first one: a line for everything that happens.

use std::io::{BufWriter, Write};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A time in microseconds since the doors opened.
pub(crate) type Micros = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// Waits for the doors to open, with so many requests.
    Ready { requests: u64 },
    /// A buyer has been served.
    Served {
        answer: Answer,
        at: Micros,
        took: Micros,
        order: String,
    },
    /// A lock was held.
    Held(Hold),
    /// Has something in hand and waits: the moment to be killed or paused.
    InHand,
    /// All its buyers have been served.
    Closed(Totals),
    /// A worker has stored its last order.
    Stored { claimed: u64, again: u64 },
    /// It cannot go on, and says why.
    Fails(String),
}

/// What a buyer hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Sold,
    SoldOut,
    /// By the limiter: too many requests of one user.
    Refused,
}

/// Somebody held a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) segment: usize,
    pub(crate) from: Micros,
    pub(crate) to: Micros,
}

/// What a process of buyers has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Commands it sent that are not scripts; the server counts those.
    pub(crate) commands: u64,
    /// Times a holder was about to write, or may have written, although its lock was lost.
    pub(crate) stale_tried: u64,
    /// How many of these were kept from writing.
    pub(crate) stale_refused: u64,
    /// Purchases that were asked for again, because the first answer did not come.
    pub(crate) asked_again: u64,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready { requests } => write!(f, "ready {requests}"),
            Self::Served {
                answer,
                at,
                took,
                order,
            } => {
                let word = match answer {
                    Answer::Sold => "sold",
                    Answer::SoldOut => "none",
                    Answer::Refused => "refused",
                };
                write!(f, "{word} {at} {took} {order}")
            }
            Self::Held(Hold { segment, from, to }) => write!(f, "held {segment} {from} {to}"),
            Self::InHand => f.write_str("in-hand"),
            Self::Closed(totals) => write!(
                f,
                "closed {} {} {} {}",
                totals.commands, totals.stale_tried, totals.stale_refused, totals.asked_again
            ),
            Self::Stored { claimed, again } => write!(f, "stored {claimed} {again}"),
            Self::Fails(why) => write!(f, "fails {}", why.replace('\n', " ")),
        }
    }
}

impl Line {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "fails" {
            return Some(Self::Fails(rest.to_owned()));
        }
        let mut words = rest.split(' ');
        let mut number = || words.next()?.parse().ok();
        let served = |answer, at: Option<u64>, took: Option<u64>| {
            Some(Self::Served {
                answer,
                at: at?,
                took: took?,
                order: rest.rsplit(' ').next()?.to_owned(),
            })
        };
        match word {
            "ready" => Some(Self::Ready {
                requests: number()?,
            }),
            "sold" => served(Answer::Sold, number(), number()),
            "none" => served(Answer::SoldOut, number(), number()),
            "refused" => served(Answer::Refused, number(), number()),
            "held" => Some(Self::Held(Hold {
                segment: number()? as usize,
                from: number()?,
                to: number()?,
            })),
            "in-hand" => Some(Self::InHand),
            "closed" => Some(Self::Closed(Totals {
                commands: number()?,
                stale_tried: number()?,
                stale_refused: number()?,
                asked_again: number()?,
            })),
            "stored" => Some(Self::Stored {
                claimed: number()?,
                again: number()?,
            }),
            _ => None,
        }
    }
}

/// Writes lines without making anybody wait for the pipe.
#[derive(Debug, Clone)]
pub(crate) struct Mouth(Sender<Line>);

impl Mouth {
    pub(crate) fn open() -> (Self, std::thread::JoinHandle<()>) {
        let (sender, lines) = channel();
        (Self(sender), std::thread::spawn(move || speak(&lines)))
    }

    pub(crate) fn say(&self, line: Line) {
        // Nobody listens any more: then the end of the input ends this process as well.
        let _ = self.0.send(line);
    }
}

/// Ends with the last `Mouth`.
fn speak(lines: &Receiver<Line>) {
    let mut out = BufWriter::new(std::io::stdout());
    while let Ok(first) = lines.recv() {
        // What has gathered meanwhile goes out in one write.
        for line in std::iter::once(first).chain(lines.try_iter()) {
            if writeln!(out, "{line}").is_err() {
                return;
            }
        }
        if out.flush().is_err() {
            return;
        }
    }
}

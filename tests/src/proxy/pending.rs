use std::collections::VecDeque;
use std::sync::Arc;

use super::request::Request;
use super::rules::{DropMode, Slot};
use crate::resp;

/// A reply that is to be lost, and who wants to know.
pub(super) struct Loss {
    pub(super) mode: DropMode,
    pub(super) slot: Arc<Slot>,
    pub(super) request: Request,
}

/// What a frame of the server is.
pub(super) enum Answer {
    /// The (last part of the) answer to a request.
    Reply(Option<Loss>),
    /// A message nobody asked for.
    Push,
}

/// The requests of one connection that the server has yet to answer, and so
/// the meaning of the next frame it sends.
///
/// Not known to it: `MONITOR` and `CLIENT REPLY`, which break the order.
#[derive(Default)]
pub(super) struct Pending {
    queue: VecDeque<Awaited>,
    resp3: bool,
    /// In RESP2 messages look like replies, but only after a subscription.
    subscribed: bool,
}

struct Awaited {
    loss: Option<Loss>,
    /// Subscriptions are answered by one push a channel.
    confirmations: usize,
    hello3: bool,
}

impl Pending {
    pub(super) fn sent(&mut self, request: &Request, loss: Option<Loss>) {
        let subscription = matches!(
            request.name().as_str(),
            "SUBSCRIBE"
                | "PSUBSCRIBE"
                | "SSUBSCRIBE"
                | "UNSUBSCRIBE"
                | "PUNSUBSCRIBE"
                | "SUNSUBSCRIBE"
        );
        self.subscribed |= subscription;
        let confirmations = if subscription {
            // An UNSUBSCRIBE of everything names no channel, gets one or more.
            (request.args().len() - 1).max(1)
        } else {
            0
        };
        self.queue.push_back(Awaited {
            loss,
            confirmations,
            hello3: request.name() == "HELLO" && request.arg(1) == "3",
        });
    }

    pub(super) fn received(&mut self, frame: &[u8]) -> Answer {
        let kind = resp::kind(frame);
        let word = resp::first_word(frame).unwrap_or_default();
        let confirmation = word.ends_with(b"subscribe");
        let push = kind == b'>'
            || (kind == b'*'
                && self.subscribed
                && !self.resp3
                && (confirmation || is_message(word)));
        if push {
            if confirmation
                && let Some(first) = self.queue.front_mut()
                && first.confirmations > 0
            {
                first.confirmations -= 1;
                let loss = first.loss.take();
                if first.confirmations == 0 {
                    self.queue.pop_front();
                }
                return Answer::Reply(loss);
            }
            // A confirmation too many (see above) is no message to lose.
            return if confirmation {
                Answer::Reply(None)
            } else {
                Answer::Push
            };
        }
        // The server may speak first, to refuse a connection; a subscription
        // that is refused gets one error for all its channels.
        let first = self.queue.pop_front();
        if first.as_ref().is_some_and(|first| first.hello3) && kind != b'-' {
            self.resp3 = true;
        }
        Answer::Reply(first.and_then(|first| first.loss))
    }
}

fn is_message(word: &[u8]) -> bool {
    matches!(word, b"message" | b"pmessage" | b"smessage")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::rules::{DropMode, Rules};
    use super::{Answer, Loss, Pending, Request};

    fn request(words: &str) -> Request {
        let args = words.split(' ').map(|word| word.as_bytes().to_vec());
        Request::new(1, args.collect())
    }

    /// Sends a request whose reply is to be recognised.
    fn marked(pending: &mut Pending, words: &str) {
        let request = request(words);
        let slot = Rules::default().add(Box::new(|_| true), Some(DropMode::Silent));
        let loss = Loss {
            mode: DropMode::Silent,
            slot: Arc::clone(&slot),
            request: request.clone(),
        };
        pending.sent(&request, Some(loss));
    }

    fn answered(pending: &mut Pending, frame: &str) -> Option<String> {
        match pending.received(frame.as_bytes()) {
            Answer::Reply(loss) => Some(loss.map_or(String::new(), |loss| loss.request.arg(1))),
            Answer::Push => None,
        }
    }

    #[test]
    fn replies_belong_to_requests_in_order() {
        let mut pending = Pending::default();
        marked(&mut pending, "GET a");
        pending.sent(&request("GET b"), None);
        marked(&mut pending, "GET c");
        assert_eq!(answered(&mut pending, "$1\r\n1\r\n").as_deref(), Some("a"));
        assert_eq!(answered(&mut pending, "$-1\r\n").as_deref(), Some(""));
        assert_eq!(answered(&mut pending, "-ERR\r\n").as_deref(), Some("c"));
    }

    #[test]
    fn a_push_between_replies_is_no_reply() {
        let mut pending = Pending::default();
        marked(&mut pending, "GET a");
        let push = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n";
        assert_eq!(answered(&mut pending, push), None);
        assert_eq!(answered(&mut pending, "+OK\r\n").as_deref(), Some("a"));
    }

    #[test]
    fn a_subscription_takes_a_confirmation_a_channel() {
        for kind in ['>', '*'] {
            let mut pending = Pending::default();
            pending.sent(&request("SUBSCRIBE a b"), None);
            marked(&mut pending, "PING x");
            let confirmation = format!("{kind}3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
            for _ in 0..2 {
                assert_eq!(answered(&mut pending, &confirmation).as_deref(), Some(""));
            }
            let message = format!("{kind}3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nm\r\n");
            assert_eq!(answered(&mut pending, &message), None);
            assert_eq!(answered(&mut pending, "+PONG\r\n").as_deref(), Some("x"));
        }
    }

    #[test]
    fn a_refused_subscription_takes_one_error() {
        let mut pending = Pending::default();
        pending.sent(&request("SUBSCRIBE a b"), None);
        marked(&mut pending, "GET x");
        assert_eq!(answered(&mut pending, "-NOPERM\r\n").as_deref(), Some(""));
        assert_eq!(answered(&mut pending, "+OK\r\n").as_deref(), Some("x"));
    }

    #[test]
    fn a_list_that_looks_like_a_message_is_a_reply_in_resp3() {
        let mut pending = Pending::default();
        pending.sent(&request("HELLO 3"), None);
        assert_eq!(answered(&mut pending, "%0\r\n").as_deref(), Some(""));
        pending.sent(&request("SUBSCRIBE a"), None);
        let confirmation = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
        assert_eq!(answered(&mut pending, confirmation).as_deref(), Some(""));
        marked(&mut pending, "LRANGE list");
        let list = "*1\r\n$7\r\nmessage\r\n";
        assert_eq!(answered(&mut pending, list).as_deref(), Some("list"));
    }
}

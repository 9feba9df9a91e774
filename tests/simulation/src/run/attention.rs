//! Polling a future as its operation says.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::plan::Attention;

/// Polls a future with gaps. `None` where it is to be dropped.
pub(crate) struct Attended<'a, T, S> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    attention: Attention,
    polls: u32,
    /// It is dropped instead of the next poll.
    ends: bool,
    asleep: Option<(Pin<Box<Sleep>>, S)>,
    /// Makes what is there while it does not run.
    falls_asleep: Box<dyn Fn() -> S + 'a>,
    /// Told whether it is polled from now on.
    tell: Box<dyn Fn(bool) + 'a>,
}

impl<'a, T, S> Attended<'a, T, S> {
    pub(crate) fn new(
        future: impl Future<Output = T> + 'a,
        attention: Attention,
        falls_asleep: impl Fn() -> S + 'a,
        tell: impl Fn(bool) + 'a,
    ) -> Self {
        Self {
            future: Box::pin(future),
            attention,
            polls: 0,
            ends: false,
            asleep: None,
            falls_asleep: Box::new(falls_asleep),
            tell: Box::new(tell),
        }
    }
}

impl<T, S: Unpin> Future for Attended<'_, T, S> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.ends {
            return Poll::Ready(None);
        }
        loop {
            if let Some((asleep, _)) = &mut self.asleep {
                if asleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.asleep = None;
                if matches!(self.attention, Attention::SleepThenDrop(..)) {
                    return Poll::Ready(None);
                }
                (self.tell)(true);
            }
            if let Poll::Ready(value) = self.future.as_mut().poll(cx) {
                return Poll::Ready(Some(value));
            }
            self.polls += 1;
            match self.attention {
                // A request that is dropped in the turn that made it is never sent. Every second future lives for one more turn.
                Attention::Drop(polls) if self.polls >= polls && polls % 2 == 1 => {
                    self.ends = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Attention::Drop(polls) if self.polls >= polls => return Poll::Ready(None),
                Attention::Sleep(polls, time) | Attention::SleepThenDrop(polls, time)
                    if self.polls == polls =>
                {
                    (self.tell)(false);
                    let asleep = (self.falls_asleep)();
                    self.asleep = Some((Box::pin(sleep(Duration::from_millis(time))), asleep));
                }
                _ => return Poll::Pending,
            }
        }
    }
}

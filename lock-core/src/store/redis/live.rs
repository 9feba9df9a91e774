//! A connection in use.

use std::time::Duration;

use super::socket::Socket;
use crate::base::time::Moment;

#[derive(Clone)]
pub(super) struct Live {
    pub(super) generation: u64,
    /// The time before it was made, and how long that took.
    pub(super) dialled: Moment,
    pub(super) made_in: Duration,
    pub(super) socket: Socket,
}

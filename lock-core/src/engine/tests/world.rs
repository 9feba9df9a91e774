//! The world of one acquisition, and the events in it: its client, the task, the requests under way, and what the server has of it.

use std::sync::Arc;

use std::time::Duration;

use super::super::state::{Action, Asker, Next, SentRequest, State, Swept};
use crate::base::error::Cause;
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::store::{Answer, Grant, QueuePlace, Released, StoreError};

/// The last fencing token: the server grants places of the queue twice.
const FENCES: u64 = 3;

const T0: Moment = Moment(1 << 50);

fn terms() -> Terms {
    let ttl = Duration::from_secs(30);
    Terms::new(ttl, ttl, Duration::from_millis(302))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnServer {
    Nothing,
    Place,
    Lock,
}

/// A request under way, and its answer once it has taken effect.
#[derive(Debug, Clone, Copy)]
struct Request {
    sent_at: Moment,
    answer: Option<OnServer>,
}

impl Request {
    fn answered(self) -> Option<(Moment, OnServer)> {
        Some((self.sent_at, self.answer?))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Waiting,
    Holding,
    /// Its guard has ended, and it releases.
    Releasing,
    /// As before, and it does not run.
    Stalled,
    /// Its guard has lost the lock, and the task has yet to clean up.
    Lost,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Idle,
    Releases,
    /// The server has released, and the answer is under way.
    Released(bool),
    /// It waits until requests of a broken connection can take effect no more.
    Pauses,
    /// It waits for the end of a request that is under way.
    AwaitsRequest,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    state: State,
    server: OnServer,
    client: Client,
    waiter: Option<Request>,
    refresh: Option<Request>,
    /// Requests whose connection broke, and which may still take effect.
    late: u8,
    task: Task,
    /// Clean-ups that a thread is about to ask for: it registers the acquisition, and then tells the task.
    asked_for: u8,
    /// Releases that the task has been told to make.
    told: u8,
    /// Whether the engine knows the acquisition.
    is_registered: bool,
    /// The task has released the lock.
    released_by_task: bool,
    /// Number of sweeps since its client is stalled.
    sweeps: u8,
    fence: u64,
    /// Moves on with each release by force, so that requests before and after it can be told apart.
    now: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The waiter runs.
    Poll,
    WaiterLands,
    WaiterIsAnswered,
    WaiterGetsNoAnswer,
    Refresh,
    RefreshLands,
    RefreshIsAnswered,
    RefreshGetsNoAnswer,
    LateLands,
    /// The server grants the lock to the place in its queue; the message arrives, or does not.
    Grant,
    GrantUnheard,
    /// Once.
    ForceRelease,
    Leave,
    GuardEnds,
    ClientReleases,
    ClientStalls,
    Sweep,
    AskForCleanUp,
    Task,
}

pub(super) const EVENTS: [Event; 19] = [
    Event::Poll,
    Event::WaiterLands,
    Event::WaiterIsAnswered,
    Event::WaiterGetsNoAnswer,
    Event::Refresh,
    Event::RefreshLands,
    Event::RefreshIsAnswered,
    Event::RefreshGetsNoAnswer,
    Event::LateLands,
    Event::Grant,
    Event::GrantUnheard,
    Event::ForceRelease,
    Event::Leave,
    Event::GuardEnds,
    Event::ClientReleases,
    Event::ClientStalls,
    Event::Sweep,
    Event::AskForCleanUp,
    Event::Task,
];

impl World {
    pub(super) fn new() -> Self {
        Self {
            state: State::new(terms()),
            server: OnServer::Nothing,
            client: Client::Waiting,
            waiter: None,
            refresh: None,
            late: 0,
            task: Task::Idle,
            asked_for: 0,
            told: 0,
            is_registered: true,
            released_by_task: false,
            sweeps: 0,
            fence: 1,
            now: T0,
        }
    }

    /// The world after this event, or both worlds if the lock may be free or not. Empty if the event is not possible now.
    pub(super) fn after(&self, event: Event) -> Vec<Self> {
        let mut world = self.clone();
        let possible = match event {
            Event::Poll => world.poll(),
            Event::WaiterLands | Event::RefreshLands | Event::LateLands => {
                return [OnServer::Place, OnServer::Lock]
                    .into_iter()
                    .filter_map(|found| self.clone().lands(event, found))
                    .collect();
            }
            Event::WaiterIsAnswered => world.waiter_is_answered(),
            Event::WaiterGetsNoAnswer => world.waiter_gets_no_answer(),
            Event::Refresh => world.refreshes(),
            Event::RefreshIsAnswered => world.refresh_is_answered(),
            Event::RefreshGetsNoAnswer => match world.refresh.take() {
                Some(request) => world.gets_no_answer(request, Asker::Refresh),
                None => false,
            },
            Event::Grant | Event::GrantUnheard => world.grants(event == Event::Grant),
            Event::ForceRelease => world.is_released_by_force(),
            Event::Leave => world.leaves(),
            Event::GuardEnds => {
                world.client == Client::Holding && {
                    world.client = Client::Releasing;
                    world.state.let_go(Moment(0))
                }
            }
            Event::ClientReleases => world.client_releases(),
            Event::ClientStalls => {
                let releases = world.client == Client::Releasing;
                world.client = Client::Stalled;
                releases
            }
            Event::Sweep => world.sweeps(),
            Event::AskForCleanUp => world.asks_for_clean_up(),
            Event::Task => world.task_runs(),
        };
        possible.then_some(world).into_iter().collect()
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::CleanUp => self.asked_for = (self.asked_for + 1).min(2),
            Action::Forget => self.is_registered = false,
            Action::Nothing | Action::Wake | Action::Lose | Action::GoOn => {}
        }
    }

    fn asks_for_clean_up(&mut self) -> bool {
        let asks = self.asked_for > 0;
        if asks {
            self.asked_for -= 1;
            self.is_registered = true;
            self.told = (self.told + 1).min(2);
        }
        asks
    }

    fn poll(&mut self) -> bool {
        if self.client != Client::Waiting || self.waiter.is_some() {
            return false;
        }
        match self.state.next(self.now, terms()) {
            Next::Wait => return false,
            Next::Take(granted) => {
                assert_eq!(granted.terms, terms());
                self.state.taken(Moment::NEVER);
                self.client = Client::Holding;
            }
            Next::Ask => self.asks(),
            Next::TooLate => unreachable!("only an acquisition says so"),
            Next::Over => panic!("a waiter of an acquisition that is over"),
        }
        true
    }

    fn asks(&mut self) {
        self.state.asks(Asker::Waiter, self.now, terms());
        self.state.requested();
        self.waiter = Some(Request {
            sent_at: self.now,
            answer: None,
        });
    }

    fn refreshes(&mut self) -> bool {
        let waits = self.client == Client::Waiting && self.refresh.is_none();
        if !waits || !self.state.begins_refresh() {
            return false;
        }
        self.state.requested();
        self.refresh = Some(Request {
            sent_at: self.now,
            answer: None,
        });
        true
    }

    /// A request takes effect. The lock is free, or another client has it.
    fn lands(mut self, event: Event, found: OnServer) -> Option<Self> {
        let effect = match self.server {
            OnServer::Lock => OnServer::Lock,
            OnServer::Nothing | OnServer::Place => found,
        };
        if event == Event::LateLands {
            self.late = self.late.checked_sub(1)?;
        } else {
            let request = if event == Event::WaiterLands {
                &mut self.waiter
            } else {
                &mut self.refresh
            };
            let request = request.as_mut().filter(|known| known.answer.is_none())?;
            request.answer = Some(effect);
        }
        self.server = effect;
        Some(self)
    }

    fn waiter_is_answered(&mut self) -> bool {
        let Some((sent_at, answer)) = self.waiter.and_then(Request::answered) else {
            return false;
        };
        self.waiter = None;
        self.is_answered(sent_at, answer, Asker::Waiter);
        self.state.asked(Asker::Waiter);
        true
    }

    fn refresh_is_answered(&mut self) -> bool {
        let Some((sent_at, answer)) = self.refresh.and_then(Request::answered) else {
            return false;
        };
        self.refresh = None;
        self.is_answered(sent_at, answer, Asker::Refresh);
        self.state.refreshed();
        true
    }

    fn is_answered(&mut self, sent_at: Moment, found: OnServer, by: Asker) {
        let answer = match found {
            OnServer::Lock => Answer::Granted {
                fence: self.fence,
                reserve: 0,
            },
            _ => Answer::Queued(QueuePlace {
                remaining: terms().ttl(),
                last_fence: self.fence,
                holder: None,
                own_holder: None,
                is_foreign: false,
            }),
        };
        self.is_told(sent_at, &Ok(answer), by);
    }

    fn is_told(&mut self, sent_at: Moment, answer: &Result<Answer, StoreError>, by: Asker) {
        let sent = SentRequest {
            at: sent_at,
            terms: terms(),
            by,
        };
        let action = self.state.answered(sent, answer, self.now);
        self.act(action);
    }

    fn waiter_gets_no_answer(&mut self) -> bool {
        let Some(request) = self.waiter.take() else {
            return false;
        };
        self.state.asked(Asker::Waiter);
        self.gets_no_answer(request, Asker::Waiter)
    }

    fn gets_no_answer(&mut self, request: Request, by: Asker) -> bool {
        self.late += u8::from(request.answer.is_none());
        let error = StoreError::Ambiguous(Cause::of(Arc::new(std::fmt::Error)));
        self.is_told(request.sent_at, &Err(error), by);
        if by == Asker::Refresh {
            self.state.refreshed();
        }
        true
    }

    fn grants(&mut self, heard: bool) -> bool {
        if self.server != OnServer::Place || self.fence == FENCES {
            return false;
        }
        self.server = OnServer::Lock;
        self.fence += 1;
        if heard {
            let action = self.state.pushed(Grant {
                kind: crate::base::key::LockKey::new("", "a").unwrap().kind(),
                order: self.fence,
                fence: self.fence,
                reserve: 0,
                contended: false,
                ttl: terms().ttl(),
            });
            let cleans_up = matches!(action, Action::CleanUp | Action::GoOn);
            assert!(cleans_up || !self.state.is_over());
            self.act(action);
        }
        true
    }

    fn is_released_by_force(&mut self) -> bool {
        if self.server != OnServer::Lock || T0 < self.now {
            return false;
        }
        self.server = OnServer::Nothing;
        self.now = self.now + Duration::from_nanos(1);
        let action = self.state.revoked(self.now);
        assert!(action == Action::Lose || self.client != Client::Holding);
        if action == Action::Lose {
            self.client = Client::Lost;
        }
        true
    }

    fn leaves(&mut self) -> bool {
        if self.client != Client::Waiting {
            return false;
        }
        // Its request is dropped first.
        self.waiter_gets_no_answer();
        self.client = Client::Gone;
        assert!(self.state.let_go(Moment(0)));
        let action = self.state.abandoned();
        assert!(action == Action::CleanUp || self.server == OnServer::Nothing);
        self.act(action);
        true
    }

    fn client_releases(&mut self) -> bool {
        if self.client != Client::Releasing {
            return false;
        }
        if self.server == OnServer::Nothing && self.released_by_task {
            assert!(
                self.state.is_cleaned_up_by_task(),
                "the client reports the release by the task as a loss"
            );
        }
        self.client = Client::Gone;
        self.server = OnServer::Nothing;
        let action = self.state.released_by_client();
        self.act(action);
        true
    }

    fn sweeps(&mut self) -> bool {
        match self.client {
            Client::Lost => {
                self.client = Client::Gone;
                self.told += 1;
            }
            Client::Releasing | Client::Stalled => {
                if self.state.found_unreleased() == Swept::CleanUp {
                    self.told = (self.told + 1).min(2);
                }
                self.sweeps = (self.sweeps + u8::from(self.client == Client::Stalled)).min(2);
            }
            Client::Waiting | Client::Holding | Client::Gone => return false,
        }
        true
    }

    fn task_runs(&mut self) -> bool {
        match self.task {
            Task::Idle if self.told == 0 => return false,
            Task::Idle => {
                self.told -= 1;
                match self.state.begin_clean_up() {
                    Action::CleanUp => {
                        self.state.let_go(Moment(0));
                        self.release_by_task();
                    }
                    action => self.act(action),
                }
            }
            Task::Pauses if self.late > 0 => return false,
            Task::Releases | Task::Pauses => self.release_by_task(),
            Task::Released(held) => {
                let released = if held {
                    Released::Free
                } else {
                    Released::NotHeld
                };
                self.task = if self.state.released(released) {
                    Task::Pauses
                } else {
                    Task::AwaitsRequest
                };
            }
            Task::AwaitsRequest if self.state.awaits_request() => return false,
            Task::AwaitsRequest => {
                self.task = if self.state.cleaned_up() == Action::Forget {
                    self.is_registered = false;
                    Task::Idle
                } else {
                    Task::Releases
                };
            }
        }
        true
    }

    fn release_by_task(&mut self) {
        let held = self.server == OnServer::Lock;
        self.released_by_task |= held;
        self.server = OnServer::Nothing;
        self.task = Task::Released(held);
    }

    /// What holds in every world.
    pub(super) fn check(&self) {
        let holds = self.client == Client::Holding;
        if holds {
            assert_eq!(self.server, OnServer::Lock, "a guard without the lock");
        }
        assert!(
            self.is_registered || self.refresh.is_none(),
            "forgotten while a request is under way: a shutdown would not wait for it"
        );
        let left = self.client == Client::Gone || self.sweeps == 2;
        let asked = self.asked_for + self.told;
        assert!(!left || self.state.is_over() || asked > 0);
        // Nothing is under way, and no part has anything left to do.
        let done = self.waiter.is_none() && self.refresh.is_none() && self.late == 0;
        if left && done && self.task == Task::Idle && asked == 0 {
            assert_eq!(self.server, OnServer::Nothing, "a key without a release");
            assert!(!self.is_registered, "registered for ever");
        }
    }
}

//! A deterministic simulation of lock-core: one thread, virtual time, a small master, faults by seed.
//!
//! There only with `RUSTFLAGS="--cfg lock_sim --cfg tokio_unstable"`; without these flags the crate is empty. In lock-core
//! everything is real but the time, the sockets, the names, and the spawning of tasks.
//!
//! - `World`: a run. It ends with `main` or with the first `Finding`.
//! - `Process`: tasks that connect; it can pause, crash, restart, and end its runtime.
//! - `Network`: delays, stalls, cuts, resets, refused connections, for one connection, one process or all.
//! - `Server`: a master, to look into it, to stop, crash and restart it, and to watch its commands.
//! - `Trace`: what happens, hashed, and kept as lines where that is wanted.
//! - `plan`, `run`, `check`, `shrink`: what a seed draws, carrying it out, what must hold meanwhile, and making it smaller.
//!
//! All handles are cheap to clone and stay on their thread, so tasks need not be `Send`. Time moves when nothing can run, in
//! whole milliseconds. A loop that never waits for time is found as a livelock.
#![cfg_attr(lock_sim, doc = "```")]
#![cfg_attr(not(lock_sim), doc = "```ignore")]
//! use std::time::Duration;
//!
//! use lock_core::LockManager;
//! use lock_simulation::network::{Connects, Cut, Delay, Target, Way};
//! use lock_simulation::process::Sockets;
//! use lock_simulation::world::{Settings, World};
//!
//! let settings = Settings { seed: 7, keep_trace: true, ..Settings::default() };
//! let outcome = World::run(settings, async |world| {
//!     world.network().delay(Target::All, Delay::between(1, 20).or_none(50));
//!     let (one, other) = (world.process(1), world.process(2));
//!     let locks = one.connect(LockManager::builder()).await.unwrap();
//!     let held = one.spawn({
//!         let (world, one) = (world.clone(), one.clone());
//!         async move {
//!             let guard = locks.lock("a").ttl(Duration::from_secs(2)).acquire().await.unwrap();
//!             world.note(&one, format_args!("holds a until {:?}", guard.remaining()));
//!             let left = world.server().with(|master| master.ttl_micros(b"lock:a"));
//!             if left.is_none_or(|left| guard.remaining().as_micros() as i64 > left) {
//!                 world.find("deadline", format!("{left:?} on the server"));
//!             }
//!             tokio::time::sleep(Duration::from_secs(3600)).await; // renewed all the while
//!             guard.release().await
//!         }
//!     });
//!     tokio::time::sleep(Duration::from_secs(60)).await;
//!     world.network().stall(Target::Process(1), Way::ToClient);
//!     world.network().lift(Target::Process(1), Way::ToClient);
//!     world.network().cut(Target::Process(1), Cut::InsideReply(1));
//!     one.pause();
//!     one.resume();
//!     one.crash(Sockets::Closed);
//!     assert!(held.await.unwrap_err().is_cancelled());
//!     let locks = other.connect(LockManager::builder()).await.unwrap();
//!     other.spawn(async move { locks.lock("a").acquire().await.is_ok() }).await.unwrap()
//! });
//! assert_eq!((outcome.value, outcome.findings.len()), (Some(true), 0));
//! println!("{:016x}: {} lines, {:?}", outcome.hash, outcome.lines.len(), outcome.lasted);
//! ```
#![cfg(lock_sim)]

pub mod check;
mod connection;
pub mod meter;
pub mod network;
pub mod plan;
pub mod process;
pub mod quorum;
pub mod request;
pub mod run;
pub mod server;
pub mod shrink;
pub mod trace;
mod woken;
pub mod world;

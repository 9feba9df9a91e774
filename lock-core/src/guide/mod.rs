//! Pages about the use of locks. There is only text here, and examples that run.
//!
//! | Question | Page |
//! |---|---|
//! | Which backend, and when is a lock enough? | [`which_lock`] |
//! | What do I decide before the first deployment? | [`production`] |
//! | What does a Deployment need, and what happens when pods come and go? | [`kubernetes`] |
//! | How do I lock a scheduled job, an order, a cache, a transaction, and limit calls to a provider? | [`recipes`] |
//! | Which HTTP status is a [`LockError`](crate::LockError)? | [`errors_to_http`] |
//! | How do I test a service that takes locks? | [`testing`] |
//! | How do I sell limited stock to many buyers? | [`flash_sale`] |
//! | How do I replace another lock, copy by copy? | [`moving`] |
//! | What do other libraries have, and how fast are they? | [`compared`] |
//! | What can I see of my locks, and what should wake me? | [`observability`] |
//! | How do I list, inspect and release locks from a shell, and run a command under one? | [`lockctl`] |
//! | What does the server need, and how do I find the holder of a lock? | [`operating`] |
//! | Which URL do I write for a server of a cloud, or for a server that is compatible with Redis? | [`managed_servers`] |
//! | What does each error say, and where does it come from? | [`errors`] |
//! | What exactly is promised, and where does it not hold? | [`promises`] |
//! | What is on the server, byte by byte? | [`wire`] |
//!
//! The last nine, `production`, `kubernetes` and `which_lock` are also files in the folder `docs` of the repository.

#[cfg(feature = "macros")]
pub mod errors_to_http;
#[cfg(feature = "macros")]
pub mod recipes;
#[cfg(all(feature = "macros", feature = "testing"))]
pub mod testing;

// In each page the links to other pages are references, whose first definition counts: here an item of this crate, at the end of the
// file another file.

/// [operating]: crate::guide::operating
/// [promises]: crate::guide::promises#p10-fencing
/// [failover]: #what-a-failover-loses
#[doc = include_str!("../../docs/which-lock.md")]
pub mod which_lock {}

/// [which-lock]: crate::guide::which_lock
#[doc = include_str!("../../docs/selling-the-last-item.md")]
pub mod flash_sale {}

/// [rights]: crate::guide::operating#rights
#[doc = include_str!("../../docs/moving.md")]
pub mod moving {}

#[allow(clippy::doc_markdown, reason = "names of products")]
#[doc = include_str!("../../docs/compared.md")]
pub mod compared {}

/// [which-lock]: crate::guide::which_lock
/// [operating]: crate::guide::operating
/// [observability]: crate::guide::observability
/// [wire]: crate::guide::wire
/// [promises]: crate::guide::promises#p10-fencing
#[doc = include_str!("../../docs/production.md")]
pub mod production {}

/// [production]: crate::guide::production
/// [order]: crate::guide::production#the-order-at-a-shutdown
/// [upgrades]: crate::guide::production#upgrades
/// [http]: crate::guide::errors_to_http
/// [fence]: crate::guide::promises#p10-fencing
/// [running]: crate::guide::which_lock#running-a-quorum
/// [`LockManager::ping`]: crate::LockManager::ping
#[doc = include_str!("../../docs/kubernetes.md")]
pub mod kubernetes {}

/// [operating]: crate::guide::operating
#[doc = include_str!("../../docs/observability.md")]
pub mod observability {}

/// [operating]: crate::guide::operating#rights
/// [running]: crate::guide::which_lock#running-a-quorum
#[doc = include_str!("../../docs/lockctl.md")]
pub mod lockctl {}

/// [observability]: crate::guide::observability
/// [wire]: crate::guide::wire
/// [lockctl]: crate::guide::lockctl
/// [errors]: crate::guide::errors
/// [managed]: crate::guide::managed_servers
/// [which-lock]: crate::guide::which_lock
/// [failover]: crate::guide::which_lock#what-a-failover-loses
/// [running]: crate::guide::which_lock#running-a-quorum
#[doc = include_str!("../../docs/operating.md")]
pub mod operating {}

/// [operating]: crate::guide::operating
/// [lockctl]: crate::guide::lockctl
/// [failover]: crate::guide::which_lock#what-a-failover-loses
#[allow(clippy::doc_markdown, reason = "names of products and of settings")]
#[doc = include_str!("../../docs/managed-servers.md")]
pub mod managed_servers {}

/// [operating]: crate::guide::operating
#[allow(clippy::doc_markdown, reason = "sentences as they are shown")]
#[doc = include_str!("../../docs/errors.md")]
pub mod errors {}

/// [which-lock]: crate::guide::which_lock
/// [failover]: crate::guide::which_lock#what-a-failover-loses
/// [running]: crate::guide::which_lock#running-a-quorum
/// [settings]: crate::guide::operating#settings-of-the-server
/// [rights]: crate::guide::operating#rights
/// [sentinel]: crate::guide::operating#sentinel
/// [upgrades]: crate::guide::production#upgrades
#[doc = include_str!("../../docs/promises.md")]
pub mod promises {}

/// [promises]: crate::guide::promises
/// [operating]: crate::guide::operating
#[allow(clippy::doc_markdown, reason = "names of replies and arguments")]
#[doc = include_str!("../../docs/wire.md")]
pub mod wire {}

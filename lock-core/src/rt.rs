//! What comes from outside: tasks, and the seeds of hashes. A simulation (`--cfg lock_sim`) brings its own.

#[cfg(not(lock_sim))]
pub(crate) use {std::hash::RandomState, tokio::runtime::Handle, tokio::spawn};

#[cfg(lock_sim)]
pub(crate) use crate::sim::{Handle, RandomState, spawn, uuid};

/// A unique name.
#[cfg(not(lock_sim))]
pub(crate) fn uuid() -> uuid::Uuid {
    uuid::Uuid::new_v4()
}

/// Time since 1970, by the clock of the system.
pub(crate) fn unix_time() -> std::time::Duration {
    // The unit tests count sequence numbers from 1.
    #[cfg(all(test, not(lock_sim)))]
    return std::time::Duration::ZERO;
    #[cfg(all(not(test), not(lock_sim)))]
    return std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    #[cfg(lock_sim)]
    return std::time::Duration::from_secs(1_800_000_000) + crate::sim::elapsed();
}

/// The default name of a client: the name of the machine, and the number of the process.
pub(crate) fn client_name() -> String {
    #[cfg(lock_sim)]
    return "simulated".to_owned();
    #[cfg(not(lock_sim))]
    {
        #[cfg(target_os = "linux")]
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        #[cfg(not(target_os = "linux"))]
        let host = std::env::var("HOSTNAME")
            .or_else(|_| std::env::var("COMPUTERNAME"))
            .unwrap_or_else(|_| "host".to_owned());
        let pid = std::process::id().to_string();
        // The end of a long name tells the copies of a service apart.
        let most = crate::token::NAME_LEN - 1 - pid.len();
        let host = host.chars().skip(host.chars().count().saturating_sub(most));
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        };
        format!("{}-{pid}", host.map(plain).collect::<String>())
    }
}

/// A map whose order a simulation can repeat.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

//! `rediss://` in a program that does not use rustls itself: `cargo test -p lock-core --features tls-rustls --test tls`.
//!
//! Where only one provider is compiled, rustls takes it. A crate that depends on rustls with its default features adds a second
//! one, and then rustls takes none. Its feature `custom-provider` has the same effect here, and compiles nothing.

#![cfg(feature = "tls-rustls")]

use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::{LockError, LockManager};
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

static PANICKED: AtomicBool = AtomicBool::new(false);

#[tokio::test]
async fn a_connection_over_tls_needs_no_provider_of_the_program() {
    let without_default = std::panic::catch_unwind(ClientConfig::builder);
    assert!(without_default.is_err(), "rustls has a default provider");
    std::panic::set_hook(Box::new(|info| {
        PANICKED.store(true, Ordering::SeqCst);
        eprintln!("{info}");
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rediss://{}", listener.local_addr().unwrap());
    let heard = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut hello = [0; 3];
        client.read_exact(&mut hello).await.unwrap();
        // No server over TLS, as its client will see.
        client.write_all(b"-ERR no TLS here\r\n").await.unwrap();
        hello
    });
    let error = LockManager::connect(&url).await.unwrap_err();
    assert!(!PANICKED.load(Ordering::SeqCst));
    assert!(
        matches!(error, LockError::InvalidConfig { .. }),
        "{error:?}"
    );
    let shown = error.to_string();
    assert!(shown.contains("does not speak TLS on this port"), "{shown}");
    // A handshake of TLS.
    assert_eq!(heard.await.unwrap()[..2], [22, 3]);
}

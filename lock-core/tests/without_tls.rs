//! `rediss://` in a build that cannot speak TLS.

#![cfg(not(feature = "tls-rustls"))]

use lock_core::{LockError, LockManager};

#[tokio::test]
async fn tls_without_its_feature_names_the_feature() {
    match LockManager::connect("rediss://127.0.0.1:1").await {
        Err(LockError::InvalidConfig { reason }) => {
            assert!(
                reason.contains("enable the feature `tls-rustls`"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
}

//! Repeats releases that the server may not have received.

use std::sync::Arc;
use std::time::Duration;

use super::acquisition::Acquisition;
use super::released::ReleasedLately;
use super::renewals::{BATCH, by_server_and_kind};
use super::shared::Shared;
use crate::base::token::Token;
use crate::store::Renewal;

/// Releases the locks again that a server still holds because it has not received the release. First asks the server for many locks
/// at once: mostly it holds none.
pub(super) async fn repeat(shared: Arc<Shared>, released: Vec<ReleasedLately>) {
    let released = by_server_and_kind(&shared, released, |one| &one.key);
    for batch in released.iter().flat_map(|part| part.chunks(BATCH)) {
        let tokens: Vec<Token> = batch
            .iter()
            .map(|one| shared.client.token(one.sequence))
            .collect();
        let asked = batch.iter().zip(&tokens).map(|(one, token)| Renewal {
            key: &one.key,
            token,
            ttl: Duration::ZERO,
            fence: 0,
            shortens: false,
            claim: &one.claim,
        });
        let asked: Vec<_> = asked.collect();
        // After the next reconnect the server is asked again.
        let held = shared.store.extend(&asked).await;
        for (one, _) in batch
            .iter()
            .zip(held)
            .filter(|(_, held)| matches!(held, Ok(true)))
        {
            let ReleasedLately {
                sequence,
                key,
                terms,
                claim,
                ..
            } = one.clone();
            shared.release_again(Acquisition::new(sequence, key, terms, claim));
        }
    }
}

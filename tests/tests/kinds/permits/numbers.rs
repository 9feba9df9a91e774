//! Fencing tokens.

use super::rig::everywhere;

/// Proves P10.
#[tokio::test]
async fn a_writer_has_a_larger_token_than_all_before_it_and_readers_share_one() {
    everywhere(async |rig| {
        let (one, other) = (rig.rw_lock().await, rig.rw_lock().await);
        let mut last = None;
        for _ in 0..3 {
            let (first, second) = (one.read().await.unwrap(), other.read().await.unwrap());
            assert_eq!(first.fencing_token(), second.fencing_token());
            assert!(last < Some(first.fencing_token()));
            let phase = first.fencing_token();
            first.release().await.unwrap();
            // The phase goes on as long as one of its readers.
            let third = one.read().await.unwrap();
            assert_eq!(third.fencing_token(), phase);
            second.release().await.unwrap();
            third.release().await.unwrap();
            let writer = one.write().await.unwrap();
            assert!(writer.fencing_token() > phase);
            last = Some(writer.fencing_token());
            writer.release().await.unwrap();
        }
    })
    .await;
}

/// Proves P10.
#[tokio::test]
async fn a_permit_has_a_number_of_its_own() {
    everywhere(async |rig| {
        let semaphore = rig.semaphore(3).await;
        let mut seen = Vec::new();
        for _ in 0..4 {
            let (one, two) = (
                semaphore.acquire().await.unwrap(),
                semaphore.clone().permits(2).acquire().await.unwrap(),
            );
            seen.extend([one.fencing_token(), two.fencing_token()]);
            one.release().await.unwrap();
            two.release().await.unwrap();
        }
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    })
    .await;
}

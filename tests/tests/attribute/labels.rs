//! The label of a function's lock, as an observer is told of it.

use std::sync::{Arc, Mutex};

use lock_core::observe::{Event, Observer};
use lock_core::{LockError, LockManager, distributed_lock};

/// The labels of the locks that were acquired, in order.
#[derive(Default)]
struct Labels(Mutex<Vec<&'static str>>);

impl Observer for Labels {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Acquired { lock, .. } = event {
            self.0.lock().unwrap().push(lock.label);
        }
    }
}

impl Labels {
    /// Those since the last look.
    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

async fn observed() -> (LockManager, Arc<Labels>) {
    let labels = Arc::new(Labels::default());
    let builder = LockManager::builder().observer(Arc::clone(&labels));
    (builder.connect("memory://").await.unwrap(), labels)
}

type Done = Result<(), LockError>;

#[tokio::test]
async fn a_label_that_is_given_is_that_of_each_lock() {
    #[distributed_lock(key = "labels:{id}", label = "order", client = locks)]
    async fn one(locks: &LockManager, id: u64) -> Done {
        Ok(())
    }
    #[distributed_lock(keys = ["labels:{id}", name], label = "both", client = locks)]
    async fn two(locks: &LockManager, id: u64, name: &str) -> Done {
        Ok(())
    }
    #[distributed_lock(key = name, label = "again", reentrant, client = locks)]
    async fn reentrant(locks: &LockManager, name: &str) -> Done {
        Ok(())
    }
    let (locks, labels) = observed().await;
    one(&locks, 1).await.unwrap();
    two(&locks, 1, "labels").await.unwrap();
    reentrant(&locks, "labels:again").await.unwrap();
    assert_eq!(labels.take(), ["order", "both", "both", "again"]);
}

#[tokio::test]
async fn without_a_label_it_is_the_key_as_it_is_written() {
    #[distributed_lock(key = "labels", client = locks)]
    async fn fixed(locks: &LockManager) -> Done {
        Ok(())
    }
    #[distributed_lock(key = "{{labels}}:{id:04}", name = "unused", client = locks)]
    async fn captured(locks: &LockManager, id: u64) -> Done {
        Ok(())
    }
    #[distributed_lock(key = ("labels:{}:{kind}", id + 1, kind = "paid"), client = locks)]
    async fn format(locks: &LockManager, id: u64) -> Done {
        Ok(())
    }
    #[distributed_lock(key = "labels:marked", client = locks)]
    async fn marked(locks: &LockManager, #[key] id: u64) -> Done {
        Ok(())
    }
    let (locks, labels) = observed().await;
    fixed(&locks).await.unwrap();
    captured(&locks, 7).await.unwrap();
    format(&locks, 7).await.unwrap();
    marked(&locks, 7).await.unwrap();
    assert_eq!(
        labels.take(),
        [
            "labels",
            "{{labels}}:{id:04}",
            "labels:{}:{kind}",
            "labels:marked"
        ]
    );
}

#[tokio::test]
async fn without_a_label_several_keys_share_their_templates() {
    #[distributed_lock(keys = ["labels:{from}", ("labels:{}", to)], client = locks)]
    async fn transfer(locks: &LockManager, from: u64, to: u64) -> Done {
        Ok(())
    }
    let (locks, labels) = observed().await;
    transfer(&locks, 1, 2).await.unwrap();
    assert_eq!(labels.take(), ["labels:{from},labels:{}"; 2]);
}

#[tokio::test]
async fn without_a_label_and_a_template_it_is_the_name() {
    #[distributed_lock(key = name, client = locks)]
    async fn expression(locks: &LockManager, name: &str) -> Done {
        Ok(())
    }
    #[distributed_lock(keys = ["labels", name], name = "one of two", client = locks)]
    async fn partly(locks: &LockManager, name: &str) -> Done {
        Ok(())
    }
    #[distributed_lock(client = locks)]
    async fn no_key(locks: &LockManager, #[key] id: u64) -> Done {
        Ok(())
    }
    let (locks, labels) = observed().await;
    expression(&locks, "labels:7").await.unwrap();
    partly(&locks, "labels:7").await.unwrap();
    no_key(&locks, 7).await.unwrap();
    assert_eq!(
        labels.take(),
        [
            "attribute::labels::expression",
            "one of two",
            "one of two",
            "attribute::labels::no_key"
        ]
    );
}

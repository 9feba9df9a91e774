//! What a key is made of.

use std::fmt::Debug;

use lock_core::{LockError, LockGuard, LockManager, distributed_lock};

use crate::memory;

type Key = Result<String, LockError>;

#[derive(Debug, Clone, Copy)]
struct Order {
    id: u64,
}

impl Order {
    fn lock_name(self) -> String {
        format!("no.{}", self.id)
    }
}

struct Shop {
    locks: LockManager,
    tenant: String,
    address: (String, u16),
}

impl Shop {
    const PREFIX: &'static str = "keys:{shop}";

    fn tenant(&self) -> &str {
        &self.tenant
    }

    #[distributed_lock(key = "{self.tenant}:{id:>08}", client = self.locks, guard = held)]
    async fn field(&self, id: u64) -> Key {
        Ok(held.key().to_owned())
    }

    #[distributed_lock(key = "keys:{self.tenant()}:{order.lock_name()}", client = self.locks, guard = held)]
    async fn method(&self, order: Order) -> Key {
        Ok(held.key().to_owned())
    }

    #[distributed_lock(key = "keys:{self.address.0}:{self.address.1:05}", client = self.locks, guard = held)]
    async fn tuple(&self) -> Key {
        Ok(held.key().to_owned())
    }

    #[distributed_lock(key = "{Self::PREFIX}:{self.tenant}", client = self.locks, guard = held)]
    async fn constant(&self) -> Key {
        Ok(held.key().to_owned())
    }

    #[distributed_lock(key = ("{}:{}", Self::PREFIX, self.tenant), client = self.locks, guard = held)]
    async fn constant_argument(&self) -> Key {
        Ok(held.key().to_owned())
    }
}

async fn shop(tenant: &str) -> Shop {
    Shop {
        locks: memory().await,
        tenant: tenant.into(),
        address: ("main".into(), 42),
    }
}

#[tokio::test]
async fn placeholders_take_fields_methods_and_tuple_fields() {
    let shop = shop("acme").await;
    assert_eq!(shop.field(7).await.unwrap(), "acme:00000007");
    assert_eq!(
        shop.method(Order { id: 7 }).await.unwrap(),
        "keys:acme:no.7"
    );
    assert_eq!(shop.tuple().await.unwrap(), "keys:main:00042");
}

#[tokio::test]
async fn a_constant_is_text_of_the_key_and_a_field_is_not() {
    let shop = shop("{a:b}").await;
    assert_eq!(shop.constant().await.unwrap(), "keys:{shop}:%7Ba%3Ab%7D");
    assert_eq!(
        shop.constant_argument().await.unwrap(),
        "keys:{shop}:%7Ba%3Ab%7D"
    );
}

#[tokio::test]
async fn a_local_constant_and_a_const_generic_are_captured() {
    const PREFIX: &str = "keys:local";
    #[distributed_lock(key = "{PREFIX}:{N}:{id}", client = locks, guard = held)]
    async fn captured<const N: usize>(locks: &LockManager, id: &str) -> Key {
        Ok(held.key().to_owned())
    }
    let locks = memory().await;
    assert_eq!(
        captured::<3>(&locks, ":").await.unwrap(),
        "keys:local:3:%3A"
    );
}

#[tokio::test]
async fn format_specs_reach_the_value() {
    #[distributed_lock(
        key = "keys:{text:?}:{number:#06x}:{text:>width$}:{float:.1}:{id:->4}",
        client = locks,
        guard = held
    )]
    async fn captured(
        locks: &LockManager,
        text: &str,
        number: u32,
        width: usize,
        float: f64,
        id: u8,
    ) -> Key {
        Ok(held.key().to_owned())
    }
    #[distributed_lock(key = ("keys:{:>1$}:{:.*}:{width}", value, width, 0.1234), client = locks, guard = held)]
    async fn positional(locks: &LockManager, value: &str, width: usize) -> Key {
        Ok(held.key().to_owned())
    }
    let locks = memory().await;
    assert_eq!(
        captured(&locks, "a:", 255, 3, 0.25, 9).await.unwrap(),
        "keys:\"a%3A\":0x00ff: a%3A:0.2:---9"
    );
    assert_eq!(
        positional(&locks, "a", 3).await.unwrap(),
        "keys:  a:0.123:3"
    );
}

#[tokio::test]
async fn positional_and_named_arguments_are_values() {
    #[distributed_lock(
        key = ("keys:{}:{kind}:{0}:{user}", order.id + 1, kind = kind.to_uppercase()),
        client = locks,
        guard = held
    )]
    async fn mixed(locks: &LockManager, order: Order, kind: &str, user: &str) -> Key {
        Ok(held.key().to_owned())
    }
    assert_eq!(
        mixed(&memory().await, Order { id: 1 }, "a:b", "u")
            .await
            .unwrap(),
        "keys:2:A%3AB:2:u"
    );
}

#[tokio::test]
async fn a_value_cannot_look_like_another_part() {
    #[distributed_lock(key = "keys:{user}:{id}", client = locks, guard = held)]
    async fn escaped(locks: &LockManager, user: &str, id: &str) -> Key {
        Ok(held.key().to_owned())
    }
    #[distributed_lock(key = "keys:{user}:{id}", escape = false, client = locks, guard = held)]
    async fn verbatim(locks: &LockManager, user: &str, id: &str) -> Key {
        Ok(held.key().to_owned())
    }
    let locks = memory().await;
    let one = escaped(&locks, "a:b", "c").await.unwrap();
    let other = escaped(&locks, "a", "b:c").await.unwrap();
    assert_eq!((&*one, &*other), ("keys:a%3Ab:c", "keys:a:b%3Ac"));
    assert_eq!(
        escaped(&locks, "{x}", "50%").await.unwrap(),
        "keys:%7Bx%7D:50%25"
    );
    assert_eq!(verbatim(&locks, "a:b", "c").await.unwrap(), "keys:a:b:c");
    assert_eq!(verbatim(&locks, "a", "{b}").await.unwrap(), "keys:a:{b}");
}

#[tokio::test]
async fn an_expression_is_the_key_as_it_is() {
    #[distributed_lock(key = name, client = locks, guard = held)]
    async fn expression(locks: &LockManager, name: String) -> Key {
        drop(name);
        Ok(held.key().to_owned())
    }
    assert_eq!(
        expression(&memory().await, "keys:{a}:50%".into())
            .await
            .unwrap(),
        "keys:{a}:50%"
    );
}

#[tokio::test]
async fn marked_parameters_follow_the_path_of_the_function() {
    #[distributed_lock(client = locks, guard = held)]
    async fn pay(locks: &LockManager, #[key] user: &str, amount: u64, #[key] mut id: u64) -> Key {
        id += amount;
        let _ = id;
        Ok(held.key().to_owned())
    }
    assert_eq!(
        pay(&memory().await, "a:b", 5, 7).await.unwrap(),
        "attribute::keys::pay:a%3Ab:7"
    );
}

#[tokio::test]
async fn marked_parameters_follow_a_key_of_any_kind() {
    #[distributed_lock(key = "keys:literal", client = locks, guard = held)]
    async fn literal(locks: &LockManager, #[key] id: u64) -> Key {
        Ok(held.key().to_owned())
    }
    #[distributed_lock(key = "keys:{shop}", escape = false, client = locks, guard = held)]
    async fn format(locks: &LockManager, shop: &str, #[key] r#type: String) -> Key {
        drop(r#type);
        Ok(held.key().to_owned())
    }
    #[distributed_lock(key = shop, escape = true, client = locks, guard = held)]
    async fn expression(
        locks: &LockManager,
        shop: &str,
        #[key] id: impl ToString + Debug + std::fmt::Display,
    ) -> Key {
        Ok(held.key().to_owned())
    }
    let locks = memory().await;
    assert_eq!(literal(&locks, 7).await.unwrap(), "keys:literal:7");
    assert_eq!(
        format(&locks, "s", "a:b".into()).await.unwrap(),
        "keys:s:a:b"
    );
    assert_eq!(
        expression(&locks, "keys:{s}", "a:b").await.unwrap(),
        "keys:{s}:a%3Ab"
    );
}

#[tokio::test]
async fn several_keys_are_taken_together() {
    #[distributed_lock(
        keys = ["keys:{from}", ("keys:{}", to), extra, "keys:fixed"],
        client = locks,
        guard = held
    )]
    async fn transfer(
        locks: &LockManager,
        from: u64,
        to: u64,
        extra: &str,
    ) -> Result<Vec<String>, LockError> {
        let guards: &[LockGuard] = held;
        for guard in guards {
            assert!(guard.is_held());
            assert!(locks.lock(guard.key()).try_acquire().await?.is_none());
        }
        Ok(guards.iter().map(|guard| guard.key().to_owned()).collect())
    }
    let locks = memory().await;
    assert_eq!(
        transfer(&locks, 2, 1, "keys:{x}").await.unwrap(),
        ["keys:2", "keys:1", "keys:{x}", "keys:fixed"],
        "in the order in which they were written"
    );
    assert_eq!(
        transfer(&locks, 1, 1, "keys:1").await.unwrap(),
        ["keys:1", "keys:fixed"],
        "a key that comes twice is taken once"
    );
    assert!(locks.lock("keys:1").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn keys_that_are_made_at_run_time_are_taken_together_as_they_are() {
    #[distributed_lock(
        keys = ids.iter().map(|id| format!("keys:{id}")),
        client = locks,
        guard = held
    )]
    async fn all(locks: &LockManager, ids: &[&str]) -> Result<Vec<String>, LockError> {
        let keys = held.iter().map(|guard| guard.key().to_owned());
        Ok(keys.collect())
    }
    #[distributed_lock(keys = ["keys:x", "keys:y"].map(str::to_owned), client = locks, guard = held)]
    async fn of_an_array(locks: &LockManager) -> Result<usize, LockError> {
        Ok(held.len())
    }
    let locks = memory().await;
    let taken = all(&locks, &["b:c", "a", "b:c"]).await.unwrap();
    assert_eq!(taken, ["keys:b:c", "keys:a"]);
    assert_eq!(of_an_array(&locks).await.unwrap(), 2);
    let none = all(&locks, &[]).await;
    assert!(
        matches!(none, Err(LockError::InvalidKey { .. })),
        "{none:?}"
    );
}

/// Proves P13.
#[tokio::test]
async fn one_busy_key_of_several_leaves_none_taken() {
    #[distributed_lock(keys = ["keys:{a}", "keys:{b}"], wait = "0s", client = locks)]
    async fn both(locks: &LockManager, a: &str, b: &str) -> Result<(), LockError> {
        unreachable!("the body never runs without all the locks")
    }
    let locks = memory().await;
    for (a, b) in [("none:a", "none:z"), ("none:z", "none:a")] {
        for busy in ["keys:none%3Aa", "keys:none%3Az"] {
            let _held = locks.lock(busy).acquire().await.unwrap();
            assert!(matches!(
                both(&locks, a, b).await,
                Err(LockError::Busy { key, .. }) if key == busy
            ));
            let other = if busy.ends_with('a') {
                "keys:none%3Az"
            } else {
                "keys:none%3Aa"
            };
            assert!(locks.lock(other).try_acquire().await.unwrap().is_some());
        }
    }
}

#[tokio::test]
async fn callers_that_name_the_same_keys_in_any_order_never_wait_for_each_other() {
    #[distributed_lock(keys = ["keys:{a}", "keys:{b}"], client = locks)]
    async fn swap(locks: LockManager, a: u32, b: u32) -> Result<(), LockError> {
        tokio::task::yield_now().await;
        Ok(())
    }
    let locks = memory().await;
    let calls: Vec<_> = (0..60)
        .map(|n| tokio::spawn(swap(locks.clone(), n % 3, (n + 1 + n / 7) % 3)))
        .collect();
    let all = async {
        for call in calls {
            call.await.unwrap().unwrap();
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), all)
        .await
        .expect("two calls wait for each other");
}

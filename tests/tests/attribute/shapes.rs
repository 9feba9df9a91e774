//! Every shape of function that the attribute goes on.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::pin::Pin;

use lock_core::{LockError, LockManager, distributed_lock};

use crate::memory;

fn is_send<T: Send>(value: T) -> T {
    value
}

struct Account {
    locks: LockManager,
    id: u64,
    balance: u64,
}

impl Account {
    const PREFIX: &'static str = "shapes:account";

    #[distributed_lock(key = ("{}:{}", Self::PREFIX, self.id), client = self.locks)]
    async fn shared(&self) -> Result<u64, LockError> {
        Ok(self.balance)
    }

    #[distributed_lock(key = ("shapes:account:{}", self.id), client = &self.locks)]
    async fn exclusive(&mut self, amount: u64) -> Result<&mut u64, LockError> {
        self.balance += amount;
        Ok(&mut self.balance)
    }

    #[distributed_lock(key = ("shapes:account:{}", self.id), client = self.locks)]
    async fn by_value(mut self) -> Result<Self, LockError> {
        self.balance = 0;
        Ok(self)
    }

    #[distributed_lock(key = "shapes:pinned", client = self.locks)]
    async fn pinned(self: Pin<&mut Self>) -> Result<u64, LockError> {
        Ok(self.balance)
    }

    #[distributed_lock(key = "shapes:open", client = locks)]
    async fn open(locks: &LockManager, id: u64) -> Result<Self, LockError> {
        Ok(Self {
            locks: locks.clone(),
            id,
            balance: 100,
        })
    }
}

#[tokio::test]
async fn inherent_methods_with_every_receiver() {
    let locks = memory().await;
    let mut account = is_send(Account::open(&locks, 1)).await.unwrap();
    assert_eq!(is_send(account.shared()).await.unwrap(), 100);
    *is_send(account.exclusive(5)).await.unwrap() += 1;
    assert_eq!(is_send(Pin::new(&mut account).pinned()).await.unwrap(), 106);
    assert_eq!(is_send(account.by_value()).await.unwrap().balance, 0);
}

trait Ledger {
    async fn total(&self, extra: u64) -> Result<u64, LockError>;

    fn locks(&self) -> &LockManager;

    #[distributed_lock(key = "shapes:default", client = self.locks())]
    async fn provided(&self) -> Result<u64, LockError> {
        Ok(3)
    }
}

impl Ledger for Account {
    #[distributed_lock(key = ("shapes:ledger:{}", self.id), client = self.locks)]
    async fn total(&self, extra: u64) -> Result<u64, LockError> {
        Ok(self.balance + extra)
    }

    fn locks(&self) -> &LockManager {
        &self.locks
    }
}

#[tokio::test]
async fn methods_of_a_trait_and_of_its_impl() {
    let locks = memory().await;
    let account = Account::open(&locks, 2).await.unwrap();
    assert_eq!(account.total(1).await.unwrap(), 101);
    assert_eq!(account.provided().await.unwrap(), 3);
}

trait Boxed {
    fn double<'life0, 'async_trait>(
        &'life0 self,
        number: u32,
    ) -> Pin<Box<dyn Future<Output = Result<u32, LockError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait;
}

impl Boxed for LockManager {
    // What `#[async_trait]` above the impl leaves for us to see.
    #[distributed_lock(key = "shapes:boxed:{number}", client = self, guard = held)]
    fn double<'life0, 'async_trait>(
        &'life0 self,
        number: u32,
    ) -> Pin<Box<dyn Future<Output = Result<u32, LockError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let __self = self;
            let number = number;
            if number == 0 {
                return Ok(0);
            }
            assert!(
                __self
                    .lock(format!("shapes:boxed:{number}"))
                    .try_acquire()
                    .await?
                    .is_none()
            );
            assert!(held.is_held());
            let doubled: u32 = number.to_string().parse::<u32>().unwrap_or_default() * 2;
            Ok(doubled)
        })
    }
}

#[tokio::test]
async fn a_boxed_future_as_async_trait_writes_it() {
    let locks = memory().await;
    let boxed: &dyn Boxed = &locks;
    assert_eq!(boxed.double(4).await.unwrap(), 8);
    assert_eq!(boxed.double(0).await.unwrap(), 0);
}

#[tokio::test]
async fn generics_with_bounds_lifetimes_and_constants() {
    #[distributed_lock(key = "shapes:generic:{N}:{name}", client = locks)]
    async fn longest<'a, T, const N: usize>(
        locks: &LockManager,
        name: &str,
        items: &'a [T; N],
    ) -> Result<Option<&'a T>, LockError>
    where
        T: Ord + Debug + Sync,
    {
        Ok(items.iter().max())
    }
    let locks = memory().await;
    assert_eq!(
        is_send(longest(&locks, "a", &[1, 3, 2])).await.unwrap(),
        Some(&3)
    );
}

#[tokio::test]
async fn elided_lifetimes_in_the_return_type() {
    #[distributed_lock(key = text, client = LockManager::connect("memory://").await?)]
    async fn first(text: &str) -> Result<&str, LockError> {
        Ok(text.split(':').next().unwrap_or(text))
    }
    assert_eq!(is_send(first("shapes:elided")).await.unwrap(), "shapes");
}

#[tokio::test]
async fn impl_trait_as_an_argument_and_in_the_return_type() {
    #[distributed_lock(key = "shapes:{name}", client = locks)]
    async fn shout(
        locks: &LockManager,
        name: impl Display + Send,
    ) -> Result<impl Iterator<Item = char>, LockError> {
        Ok(name
            .to_string()
            .to_uppercase()
            .chars()
            .collect::<Vec<_>>()
            .into_iter())
    }
    #[distributed_lock(
        key = "shapes:opaque",
        wait = "0s", on_busy = return = String::new(),
        on_lost = continue,
        client = locks,
    )]
    async fn opaque(locks: LockManager) -> impl Display {
        String::from("opaque")
    }
    let locks = memory().await;
    assert_eq!(
        shout(&locks, "abc").await.unwrap().collect::<String>(),
        "ABC"
    );
    assert_eq!(opaque(locks).await.to_string(), "opaque");
}

#[tokio::test]
async fn patterns_and_mutable_parameters() {
    struct Point {
        x: u32,
        y: u32,
    }
    #[distributed_lock(key = "shapes:{x}:{first}", client = locks)]
    async fn sum(
        locks: &LockManager,
        Point { x, mut y }: Point,
        (first, _): (u32, u32),
        mut rest: Vec<u32>,
        _: [u8; 1],
    ) -> Result<u32, LockError> {
        y += 1;
        rest.push(x + y + first);
        Ok(rest.iter().sum())
    }
    let locks = memory().await;
    assert_eq!(
        sum(&locks, Point { x: 1, y: 2 }, (3, 4), vec![10], [0])
            .await
            .unwrap(),
        17
    );
}

#[distributed_lock(key = "shapes:depth:{left}", client = locks)]
async fn depth(locks: &LockManager, left: u32) -> Result<u32, LockError> {
    if left == 0 {
        Ok(0)
    } else {
        Ok(1 + Box::pin(depth(locks, left - 1)).await?)
    }
}

#[tokio::test]
async fn recursion_through_a_box() {
    let locks = memory().await;
    assert_eq!(depth(&locks, 4).await.unwrap(), 4);
}

#[tokio::test]
async fn two_locks_on_one_function() {
    #[distributed_lock(key = "shapes:outer", client = locks)]
    #[distributed_lock(key = "shapes:inner", client = locks)]
    async fn both(locks: &LockManager) -> Result<bool, LockError> {
        let outer = locks.lock("shapes:outer").try_acquire().await?;
        let inner = locks.lock("shapes:inner").try_acquire().await?;
        Ok(outer.is_none() && inner.is_none())
    }
    assert!(both(&memory().await).await.unwrap());
}

#[tokio::test]
async fn other_attributes_stay_in_place() {
    #[allow(
        clippy::mixed_attributes_style,
        reason = "inner and outer attributes must both be kept"
    )]
    /// Documented.
    #[distributed_lock(key = "shapes:attributes", client = locks)]
    #[must_use = "seven"]
    #[allow(
        unused_variables,
        reason = "an attribute of the user's that must be kept"
    )]
    #[cfg(not(any()))]
    async fn decorated(locks: &LockManager) -> Result<u32, LockError> {
        #![allow(unused_mut, reason = "an attribute of the user's that must be kept")]
        let unused = 1;
        let mut seven = 7;
        Ok(seven)
    }
    assert_eq!(decorated(&memory().await).await.unwrap(), 7);
}

#[tokio::test]
async fn a_raw_identifier_as_a_name_and_in_the_key() {
    #[distributed_lock(key = "shapes:{type}", client = locks)]
    async fn r#match(locks: &LockManager, r#type: u32) -> Result<u32, LockError> {
        Ok(r#type)
    }
    assert_eq!(r#match(&memory().await, 5).await.unwrap(), 5);
}

#[test]
fn the_future_is_send_and_static_when_its_parameters_are() {
    #[distributed_lock(key = "shapes:send:{name}", wait = "1s", guard = held)]
    async fn owned(name: String, values: Vec<u8>) -> Result<usize, LockError> {
        tokio::task::yield_now().await;
        Ok(values.len() + name.len() + usize::from(held.is_held()))
    }
    fn spawnable<T: Future + Send + 'static>(_: T) {}
    spawnable(owned("a".into(), vec![1]));
}

#[test]
fn a_body_without_send_is_allowed() {
    #[distributed_lock(key = "shapes:not_send", client = locks)]
    async fn counted(locks: &LockManager) -> Result<u32, LockError> {
        let shared = std::rc::Rc::new(7);
        tokio::task::yield_now().await;
        Ok(*shared)
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    assert_eq!(
        runtime.block_on(async { counted(&memory().await).await.unwrap() }),
        7
    );
}

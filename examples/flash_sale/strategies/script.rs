//! A script runs alone on the server, so it needs no lock. It cannot wait for anything either: all work is done before
//! it, by everybody at once.

use lock_examples::Outcome;
use redis::Script;

use crate::line::Answer;
use crate::shop::{Order, Till};

pub(crate) struct Counter {
    script: Script,
}

impl Counter {
    pub(crate) async fn open(till: &Till) -> Outcome<Self> {
        let script = Script::new(include_str!("../scripts/buy.lua"));
        script.load_async(&mut till.redis.clone()).await?;
        Ok(Self { script })
    }

    pub(crate) async fn sell(&self, till: &Till, order: &Order) -> Outcome<Answer> {
        till.work(order).await;
        let mut call = self.script.prepare_invoke();
        call.key(till.keys.stock())
            .key(till.keys.orders())
            .arg(&order.id);
        let sold: u8 = call.invoke_async(&mut till.redis.clone()).await?;
        Ok(if sold == 1 {
            Answer::Sold
        } else {
            Answer::SoldOut
        })
    }
}

//! What MULTI / EXEC does not undo, and what follows for locks and scripts. Six experiments on a real Redis.
//!
//! ```text
//! cargo run --example transaction_limits
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example transaction_limits
//! ```
//!
//! Without `REDIS_URL` it starts a `redis-server` of its own (`REDIS_SERVER_BIN`, else from `PATH`).

use std::process::ExitCode;

use lock_examples::{Outcome, PrivateServer, exit, redis_url, shown};
use redis::{Commands, Connection, Pipeline, RedisResult, Script, Value};

fn main() -> ExitCode {
    exit("transaction_limits", run())
}

fn run() -> Outcome {
    let (url, _server) = if let Some(url) = redis_url() {
        println!("On the server of REDIS_URL, {}:", shown(&url));
        (url, None)
    } else {
        let server = PrivateServer::start()?;
        println!(
            "REDIS_URL is not set, so on a {} of our own:",
            server.program()
        );
        (server.url(), Some(server))
    };
    let client = redis::Client::open(url)?;
    let mut lab = Lab {
        redis: client.get_connection()?,
        other: client.get_connection()?,
        sale: format!("{{limits-{}}}", std::process::id()),
    };
    let outcome = lab.experiments();
    // Also after a failure: a server of somebody else is left as it was.
    let keys = ["stock", "orders", "name"].map(|key| lab.key(key));
    let cleaned: RedisResult<()> = lab.redis.del(&keys);
    outcome?;
    Ok(cleaned?)
}

struct Lab {
    redis: Connection,
    /// Another client, which comes in between.
    other: Connection,
    sale: String,
}

impl Lab {
    fn experiments(&mut self) -> Outcome {
        self.an_error_while_queueing_drops_all()?;
        self.an_error_while_running_keeps_the_rest()?;
        self.without_watch_an_update_is_lost()?;
        self.with_watch_the_slower_one_notices()?;
        self.a_script_does_not_roll_back_either()?;
        self.the_fallible_step_first()
    }

    /// The server refuses a command as it is queued, here for its missing argument. Then EXEC does nothing at all.
    fn an_error_while_queueing_drops_all(&mut self) -> Outcome {
        self.begin("1. An error while commands are queued drops all of them")?;
        let mut wrong = transaction();
        wrong.cmd("DECR").arg(self.key("stock"));
        wrong.cmd("RPUSH").arg(self.key("orders"));
        let outcome = wrong.exec(&mut self.redis);
        self.result("DECR stock, RPUSH orders (and no order)", outcome, 10, 0)
    }

    /// The stock is a number and the name is not: the third command fails when it is run, after the first two have
    /// been done. They stay done, and so does what comes after.
    fn an_error_while_running_keeps_the_rest(&mut self) -> Outcome {
        self.begin("2. An error while they run keeps the rest: there is no rollback")?;
        let mut partly = transaction();
        partly.decr(self.key("stock"), 1);
        partly.incr(self.key("name"), 1);
        partly.rpush(self.key("orders"), "order 1");
        let outcome = partly.exec(&mut self.redis);
        self.result("DECR stock, INCR name, RPUSH orders", outcome, 9, 1)
    }

    /// Nobody comes between MULTI and EXEC. But what was read before is old by then.
    fn without_watch_an_update_is_lost(&mut self) -> Outcome {
        self.begin("3. Without WATCH, what was read before may be old")?;
        let left: i64 = self.redis.get(self.key("stock"))?;
        self.another_buys()?;
        let mut old = transaction();
        old.set(self.key("stock"), left - 1);
        old.rpush(self.key("orders"), "order 1");
        let outcome = old.exec(&mut self.redis);
        self.result("GET stock .. SET stock, RPUSH orders", outcome, 9, 2)
    }

    /// With WATCH, EXEC does nothing if the key was changed since, and says so with nil. Whoever was slower has to try
    /// again: all that it did meanwhile was in vain. A lock lets it wait instead.
    fn with_watch_the_slower_one_notices(&mut self) -> Outcome {
        self.begin("4. With WATCH, the slower one notices and may try again")?;
        let stock = self.key("stock");
        let () = redis::cmd("WATCH").arg(&stock).query(&mut self.redis)?;
        let left: i64 = self.redis.get(&stock)?;
        self.another_buys()?;
        let mut old = transaction();
        old.set(&stock, left - 1);
        old.rpush(self.key("orders"), "order 1");
        let done: Option<Value> = old.query(&mut self.redis)?;
        if done.is_some() {
            return Err("EXEC went through although the stock had changed".into());
        }
        println!("  EXEC says nil");
        self.result(
            "WATCH stock, GET stock .. SET stock, RPUSH orders",
            Ok(()),
            9,
            1,
        )
    }

    /// A script runs alone, as MULTI / EXEC does, and what it did before its error stays done, too.
    fn a_script_does_not_roll_back_either(&mut self) -> Outcome {
        self.begin("5. A script does not roll back either")?;
        let script = "redis.call('DECR', KEYS[1])
                      redis.call('INCR', KEYS[3])
                      redis.call('RPUSH', KEYS[2], 'order 1')";
        let outcome = self.run_script(script);
        self.result("the three commands of 2., in a script", outcome, 9, 0)
    }

    /// So a script of lock-core first does what can fail, and only then what must not be done by halves.
    fn the_fallible_step_first(&mut self) -> Outcome {
        self.begin("6. So what can fail comes first")?;
        let script = "redis.call('INCR', KEYS[3])
                      redis.call('DECR', KEYS[1])
                      redis.call('RPUSH', KEYS[2], 'order 1')";
        let outcome = self.run_script(script);
        self.result(
            "the same script, with its fallible line first",
            outcome,
            10,
            0,
        )
    }

    /// Ten in stock, no orders, and a name that is no number.
    fn begin(&mut self, title: &str) -> Outcome {
        println!("\n{title}");
        let mut setup = transaction();
        setup.set(self.key("stock"), 10).del(self.key("orders"));
        setup.set(self.key("name"), "phone");
        Ok(setup.exec(&mut self.redis)?)
    }

    fn another_buys(&mut self) -> Outcome {
        let mut buys = transaction();
        buys.decr(self.key("stock"), 1);
        buys.rpush(self.key("orders"), "another's order");
        Ok(buys.exec(&mut self.other)?)
    }

    fn run_script(&mut self, script: &str) -> RedisResult<()> {
        let script = Script::new(script);
        let mut call = script.prepare_invoke();
        for key in ["stock", "orders", "name"] {
            call.key(self.key(key));
        }
        call.invoke(&mut self.redis)
    }

    /// Prints what came of it. The program fails if that is not what its text says.
    fn result(&mut self, what: &str, outcome: RedisResult<()>, left: i64, sold: u64) -> Outcome {
        let error = outcome.err().map_or(String::new(), |error| {
            let code = error.code().unwrap_or("an error").to_owned();
            format!(" (the server says {code})")
        });
        let stock: i64 = self.redis.get(self.key("stock"))?;
        let orders: u64 = self.redis.llen(self.key("orders"))?;
        println!("  {what}{error}: {stock} in stock, orders: {orders}");
        if (stock, orders) != (left, sold) {
            return Err(format!("{left} should be left, with {sold} orders").into());
        }
        Ok(())
    }

    /// All keys are in one slot, so that this runs on a cluster's node as well.
    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.sale)
    }
}

fn transaction() -> Pipeline {
    let mut transaction = redis::pipe();
    transaction.atomic();
    transaction
}

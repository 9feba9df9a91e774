//! One sale from beginning to end: prepares the stock, opens the doors, watches, and balances the books.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use lock_examples::Outcome;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamInfoGroupsReply, StreamInfoStreamReply};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};

use crate::books::{Balance, Books};
use crate::buyers::{self, CATCH, LET_GO};
use crate::crew::{Member, Said};
use crate::line::{Answer, Hold, Line, Micros, Totals};
use crate::measure::{Sale, Trouble};
use crate::options::Options;
use crate::shop::{GROUP, Keys, TTL, connect, micros_of_the_day};
use crate::strategies::Strategy;
use crate::workers::{self, Fate};

/// No process is silent for so long unless something is wrong.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// How long the last orders may take to be stored. What is not there by then is lost.
const STORING: Duration = Duration::from_secs(60);
const SAMPLE: Duration = Duration::from_millis(15);
/// A paused holder wakes up when its lock has long been another's.
const PAUSE: Duration = TTL.saturating_add(Duration::from_millis(500));

/// The first two of the workers do not live long.
const FATES: [Fate; 4] = [
    Fate::DiesBeforeStoring,
    Fate::DiesBeforeConfirming,
    Fate::Lives,
    Fate::Lives,
];

/// Sells the stock with one strategy. Leaves nothing on the server and no process behind, however it ends.
pub(crate) async fn hold(
    options: &Options,
    url: &str,
    strategy: Strategy,
    bar: &ProgressBar,
) -> Outcome<Sale> {
    let name = format!("flash-sale-{}-{}", std::process::id(), strategy.name());
    let mut redis = connect(url).await?;
    let keys = Keys::new(&name);
    let books = Books::create(&name)?;
    prepare(&mut redis, &keys, options.stock, strategy.parts()).await?;
    let mut running = Running::start(options, url, strategy, &keys, &books, redis.clone())?;
    let outcome = tokio::select! {
        outcome = running.run(bar, &books) => outcome,
        outcome = interrupted() => Err(outcome.err().unwrap_or_else(|| "interrupted".into())),
    };
    // First the processes, which would write on.
    running.end().await;
    let clean = redis::cmd("UNLINK").arg(keys.all()).to_owned();
    let cleaned: Result<(), _> = clean.query_async(&mut redis).await;
    let sale = outcome?;
    cleaned?;
    Ok(sale)
}

/// Puts the stock on the shelf, in equal parts, and opens the stream of orders.
async fn prepare(
    redis: &mut MultiplexedConnection,
    keys: &Keys,
    stock: u64,
    parts: usize,
) -> Outcome {
    let mut setup = redis::pipe();
    setup.atomic();
    for (key, pieces) in shelf(keys, stock, parts) {
        setup.set(key, pieces).ignore();
    }
    let mut group = redis::cmd("XGROUP");
    group.arg("CREATE").arg(keys.orders()).arg(GROUP);
    setup.add_command(group.arg("0").arg("MKSTREAM").to_owned());
    let () = setup.ignore().query_async(redis).await?;
    Ok(())
}

/// The keys that hold the stock, and how much each holds at first.
fn shelf(keys: &Keys, stock: u64, parts: usize) -> Vec<(String, u64)> {
    if parts == 1 {
        return vec![(keys.stock(), stock)];
    }
    let parts = split(stock, parts).enumerate();
    parts
        .map(|(part, pieces)| (keys.part(part), pieces))
        .collect()
}

/// The stock in equal parts, of which the first may have one more.
pub(crate) fn split(stock: u64, parts: usize) -> impl Iterator<Item = u64> {
    let parts = parts as u64;
    (0..parts).map(move |part| stock / parts + u64::from(part < stock % parts))
}

pub(crate) async fn interrupted() -> Outcome {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        _ = terminated.recv() => Err("terminated".into()),
    }
}

/// Starts the processes of buyers.
pub(crate) fn start_buyers(
    options: &Options,
    url: &str,
    strategy: Strategy,
    sale: &str,
    sender: &UnboundedSender<Said>,
) -> Outcome<Vec<Member>> {
    let users = split(options.buyers, options.processes).enumerate();
    users
        .map(|(process, users)| {
            let task = buyers::Task {
                sale: sale.to_owned(),
                strategy,
                process,
                users,
                work: options.work,
                seed: options.seed,
            };
            Member::start(process, &task.args(), url, sender.clone())
        })
        .collect()
}

/// Waits until every process stands at the doors; how many requests they have.
pub(crate) async fn all_ready(said: &mut UnboundedReceiver<Said>, members: usize) -> Outcome<u64> {
    let mut requests = 0;
    for _ in 0..members {
        let said = timeout(SILENCE, said.recv()).await;
        match said.map_err(|_| "a process does not start")? {
            Some((_, Some(Line::Ready { requests: more }))) => requests += more,
            Some((_, Some(Line::Fails(why)))) => return Err(why.into()),
            _ => return Err("a process has ended before the sale".into()),
        }
    }
    Ok(requests)
}

/// What is planned for whoever has something in hand next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Kill,
    Pause,
}

struct Running {
    strategy: Strategy,
    stock: u64,
    shelf: Vec<String>,
    keys: Keys,
    redis: MultiplexedConnection,
    buyers: usize,
    members: Vec<Member>,
    /// Members that may go silent: they were sent home, or killed.
    done: Vec<bool>,
    said: UnboundedReceiver<Said>,
    opened: Instant,
    /// From how many sold pieces on; the last in the list is the first to come.
    chaos: Vec<(u64, Plan)>,
    planned: Option<Plan>,
    paused: Option<(usize, tokio::time::Instant)>,
    survivors_at_work: bool,
    confirmed: HashSet<String>,
    waits: Vec<Micros>,
    last_sold: Micros,
    answered: u64,
    refused: u64,
    totals: Totals,
    left: Vec<(Micros, i64)>,
    holds: Vec<(usize, Hold)>,
    trouble: Trouble,
}

impl Running {
    fn start(
        options: &Options,
        url: &str,
        strategy: Strategy,
        keys: &Keys,
        books: &Books,
        redis: MultiplexedConnection,
    ) -> Outcome<Self> {
        let (sender, said) = unbounded_channel();
        let mut members = start_buyers(options, url, strategy, keys.sale(), &sender)?;
        for (worker, fate) in FATES.into_iter().enumerate() {
            let task = workers::Task {
                sale: keys.sale().to_owned(),
                name: format!("worker-{}", worker + 1),
                database: books.path(),
                fate,
            };
            let number = options.processes + worker;
            members.push(Member::start(number, &task.args(), url, sender.clone())?);
        }
        let mut chaos = Vec::new();
        if options.chaos {
            chaos.push((options.stock / 2, Plan::Pause));
            // The buyers of the killed do not come back: somebody must be left.
            if options.processes > 1 {
                chaos.push((options.stock / 4, Plan::Kill));
            }
        }
        let shelf = shelf(keys, options.stock, strategy.parts());
        Ok(Self {
            strategy,
            stock: options.stock,
            shelf: shelf.into_iter().map(|(key, _)| key).collect(),
            keys: keys.clone(),
            redis,
            buyers: options.processes,
            done: vec![false; members.len()],
            planned: None,
            members,
            said,
            opened: Instant::now(),
            chaos,
            paused: None,
            survivors_at_work: false,
            confirmed: HashSet::new(),
            waits: Vec::new(),
            last_sold: 0,
            answered: 0,
            refused: 0,
            totals: Totals::default(),
            left: Vec::new(),
            holds: Vec::new(),
            trouble: Trouble::default(),
        })
    }

    async fn run(&mut self, bar: &ProgressBar, books: &Books) -> Outcome<Sale> {
        bar.set_length(all_ready(&mut self.said, self.members.len()).await?);
        let before = self.scripts_run().await?;
        self.opened = Instant::now();
        let epoch = micros_of_the_day().to_string();
        for member in &mut self.members[..self.buyers + 2] {
            member.tell(&epoch).await;
        }

        let mut sampling = interval(SAMPLE);
        sampling.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.done[..self.buyers].iter().all(|done| *done) {
            let wakes = self.paused.map(|(_, at)| at);
            tokio::select! {
                said = timeout(SILENCE, self.said.recv()) => {
                    let said = said.map_err(|_| "the processes are silent")?;
                    self.hear(said.ok_or("all processes have ended")?, bar).await?;
                }
                () = async { sleep_until(wakes.unwrap_or_else(tokio::time::Instant::now)).await }, if wakes.is_some() => {
                    self.resume().await;
                }
                _ = sampling.tick() => self.sample().await?,
            }
        }
        self.sample().await?;
        let scripts = self.scripts_run().await? - before;
        self.store_the_rest(bar).await?;

        let left = self.left.last().map_or(0, |(_, left)| *left);
        let taken = i64::try_from(self.stock)? - left;
        let (redis, confirmed) = (&mut self.redis, &self.confirmed);
        let balance = Balance::strike(redis, &self.keys, books, taken, confirmed).await?;
        self.waits.sort_unstable();
        Ok(Sale {
            strategy: self.strategy,
            stock: self.stock,
            balance,
            waits: std::mem::take(&mut self.waits),
            last_sold: self.last_sold,
            answered: self.answered,
            refused: self.refused,
            commands: self.totals.commands + scripts,
            left: std::mem::take(&mut self.left),
            holds: std::mem::take(&mut self.holds),
            trouble: Trouble {
                stale_tried: self.totals.stale_tried,
                stale_refused: self.totals.stale_refused,
                ..self.trouble
            },
        })
    }

    async fn hear(&mut self, (number, line): Said, bar: &ProgressBar) -> Outcome {
        match line {
            Some(Line::Served {
                answer,
                at,
                took,
                order,
            }) => {
                bar.inc(1);
                self.served(answer, at, took, order).await;
            }
            Some(Line::Held(hold)) => self.holds.push((number, hold)),
            Some(Line::InHand) if number < self.buyers => self.strike(number).await?,
            Some(Line::InHand) => {
                self.done[number] = true;
                self.members[number].kill().await?;
                self.trouble.workers_killed += 1;
                if self.trouble.workers_killed == 2 {
                    self.call_the_survivors().await;
                }
            }
            Some(Line::Closed(totals)) => {
                self.done[number] = true;
                self.totals.commands += totals.commands;
                self.totals.stale_tried += totals.stale_tried;
                self.totals.stale_refused += totals.stale_refused;
            }
            Some(Line::Stored { claimed, again }) => {
                self.done[number] = true;
                self.trouble.claimed += claimed;
                self.trouble.again += again;
            }
            Some(Line::Fails(why)) => return Err(why.into()),
            None if self.done[number] => {}
            Some(Line::Ready { .. }) | None => return Err("a process has ended by itself".into()),
        }
        Ok(())
    }

    async fn served(&mut self, answer: Answer, at: Micros, took: Micros, order: String) {
        match answer {
            Answer::Refused => self.refused += 1,
            Answer::SoldOut => self.answered += 1,
            Answer::Sold => {
                self.answered += 1;
                self.last_sold = self.last_sold.max(at);
                self.waits.push(took);
                self.confirmed.insert(order);
                let sold = self.waits.len() as u64;
                if self.planned.is_none()
                    && let Some((_, plan)) = self.chaos.pop_if(|(threshold, _)| *threshold <= sold)
                {
                    self.planned = Some(plan);
                    self.tell_buyers(CATCH).await;
                }
            }
        }
    }

    /// A process of buyers is in the middle of a purchase: that is the moment.
    async fn strike(&mut self, process: usize) -> Outcome {
        let Some(plan) = self.planned.take() else {
            return Ok(());
        };
        match plan {
            Plan::Kill => {
                self.done[process] = true;
                self.members[process].kill().await?;
                self.trouble.holders_killed += 1;
            }
            Plan::Pause => {
                self.members[process].pause();
                self.paused = Some((process, tokio::time::Instant::now() + PAUSE));
                self.trouble.holders_paused += 1;
            }
        }
        // Whoever else was caught goes unharmed. The paused one hears of it when it goes on, so it stands where it was.
        self.tell_buyers(LET_GO).await;
        Ok(())
    }

    async fn tell_buyers(&mut self, line: &str) {
        let paused = self.paused.map(|(process, _)| process);
        for (process, member) in self.members[..self.buyers].iter_mut().enumerate() {
            if !self.done[process] && paused != Some(process) {
                member.tell(line).await;
            }
        }
    }

    async fn resume(&mut self) {
        if let Some((process, _)) = self.paused.take() {
            self.members[process].resume();
            self.members[process].tell(LET_GO).await;
        }
    }

    async fn call_the_survivors(&mut self) {
        if !std::mem::replace(&mut self.survivors_at_work, true) {
            for survivor in &mut self.members[self.buyers + 2..] {
                survivor.tell("go").await;
            }
        }
    }

    /// The sale is over: waits until every order was confirmed by a worker, and sends them home.
    async fn store_the_rest(&mut self, bar: &ProgressBar) -> Outcome {
        self.call_the_survivors().await;
        let until = Instant::now() + STORING;
        let mut looking = interval(SAMPLE);
        looking.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while Instant::now() < until {
            tokio::select! {
                said = self.said.recv() => {
                    self.hear(said.ok_or("all processes have ended")?, bar).await?;
                }
                _ = looking.tick() => if self.all_confirmed().await? {
                    break;
                }
            }
        }
        for worker in &mut self.members[self.buyers..] {
            worker.close();
        }
        while !self.done.iter().all(|done| *done) {
            let said = timeout(SILENCE, self.said.recv()).await;
            let said = said.map_err(|_| "a worker does not go home")?;
            self.hear(said.ok_or("all processes have ended")?, bar)
                .await?;
        }
        Ok(())
    }

    async fn all_confirmed(&mut self) -> Outcome<bool> {
        let orders = self.keys.orders();
        let mut look = redis::pipe();
        look.cmd("XINFO").arg("GROUPS").arg(&orders);
        look.cmd("XINFO").arg("STREAM").arg(&orders);
        let (groups, stream): (StreamInfoGroupsReply, StreamInfoStreamReply) =
            look.query_async(&mut self.redis).await?;
        Ok(groups
            .groups
            .iter()
            .all(|group| group.pending == 0 && group.last_delivered_id == stream.last_generated_id))
    }

    async fn sample(&mut self) -> Outcome {
        let parts: Vec<i64> = redis::cmd("MGET")
            .arg(&self.shelf)
            .query_async(&mut self.redis)
            .await?;
        let at = self.opened.elapsed().as_micros() as Micros;
        self.left.push((at, parts.iter().sum()));
        Ok(())
    }

    /// How many scripts the server has run for anybody.
    async fn scripts_run(&mut self) -> Outcome<u64> {
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut self.redis)
            .await?;
        let calls = |line: &str| {
            let rest = ["cmdstat_evalsha:calls=", "cmdstat_eval:calls="];
            let rest = rest.iter().find_map(|head| line.strip_prefix(head))?;
            rest.split(',').next()?.parse::<u64>().ok()
        };
        Ok(info.lines().filter_map(calls).sum())
    }

    /// Ends whoever still runs.
    async fn end(&mut self) {
        for member in &mut self.members {
            let _ = member.kill().await;
        }
    }
}

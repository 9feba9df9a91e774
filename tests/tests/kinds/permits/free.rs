//! The short way of free permits: it leaves what the whole script would leave. Both run from random states.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use lock_tests::TestServer;
use lock_tests::scripts::scripts;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd, pipe};

use super::rig::on_servers;

const CASES: u64 = 1000;
const HALF_A_DAY: u64 = 43_200_000;
const OF_READERS: u64 = 1 << 30;

/// What is left of a lock.
const LEFT: &str = "
local function sorted(key)
  local all, kind = {}, redis.call('TYPE', key)['ok']
  if kind == 'string' then return redis.call('GET', key) end
  for _, field in ipairs(kind == 'hash' and redis.call('HKEYS', key) or {}) do
    all[#all + 1] = field .. '=' .. redis.call('HGET', key, field)
  end
  table.sort(all)
  return all
end
return {sorted(KEYS[1]), redis.call('LRANGE', KEYS[2], 0, -1), sorted(KEYS[3]), sorted(KEYS[4])}";

/// A token of the client with this letter.
fn token(letter: char) -> String {
    format!("{}:1700000000000000:name", letter.to_string().repeat(36))
}

/// A script in three forms. Its clock stands still.
struct Forms {
    whole: String,
    /// The short way alone: it answers nil where the rest would go on.
    short: String,
    /// Without the short way.
    long: String,
}

impl Forms {
    /// The short way has this condition in front, and ends before the file that begins so.
    fn of(script: &str, [condition, rest]: [&str; 2], now: u64) -> Self {
        let clock = format!("{{'{}', '{:03}456'}}", now / 1000, now % 1000);
        let whole = &scripts()[script].text;
        let whole = whole.replace("redis.call('TIME')", &clock);
        let (short, _) = whole.split_once(rest).unwrap();
        let long = whole.replace(condition, "if false and ");
        assert_ne!(whole, long);
        Self {
            short: short.to_owned(),
            long,
            whole,
        }
    }
}

/// A state, and a request, as lines in which `@` stands for the name of the lock.
struct Case {
    state: Vec<String>,
    args: Vec<String>,
}

impl Case {
    /// What is held is a semaphore's or a read-write lock's; some has expired, and some is waited for.
    fn random(random: &mut Rng, now: u64) -> Self {
        let kind = *random.choice(&["semaphore", "read-write"]).unwrap();
        let max = if kind == "semaphore" {
            random.u64(1..6)
        } else {
            OF_READERS
        };
        let before = if one_in(random, 3) {
            random.u64(1..6)
        } else {
            0
        };
        let mut state = match random.u8(0..16) {
            0..4 => Vec::new(),
            4 => vec!["SET @ text PX 600000".to_owned()],
            5 => vec!["HSET @ field value".to_owned()],
            _ => held(random, now, kind, max, before),
        };
        if one_in(random, 5) {
            for letter in some_of(random, "ABC") {
                state.extend(waits(random, now, letter));
            }
        }
        if random.bool() {
            let fence = now * 1000 + 400 + random.u64(0..100);
            state.push(format!("SET @fence {fence}"));
        }
        let weight = match random.u8(0..8) {
            0 if kind == "read-write" => OF_READERS,
            0..3 => random.u64(1..7),
            _ => 1,
        };
        let asked = match random.u8(0..8) {
            0 => random.u64(1..6),
            1 if before > 0 => before,
            _ => max,
        };
        let named = if one_in(random, 8) { "semaphore" } else { kind };
        let mode = random.choice(["try", "wait"]).unwrap();
        let ttl = random.u64(1000..1_200_000);
        let words = [&token('A'), &ttl.to_string(), named, &asked.to_string()];
        let mut args = words.map(str::to_owned).to_vec();
        args.extend([weight.to_string(), format!("{mode} 5000 ")]);
        Self { state, args }
    }
}

fn one_in(random: &mut Rng, many: u8) -> bool {
    random.u8(0..many) == 0
}

fn some_of(random: &mut Rng, letters: &str) -> Vec<char> {
    letters.chars().filter(|_| random.bool()).collect()
}

/// A waiter that polls, dead or alive.
fn waits(random: &mut Rng, now: u64, letter: char) -> [String; 2] {
    let (token, client) = (token(letter), letter.to_string().repeat(36));
    let alive = if random.bool() { now + 10_000 } else { now - 1 };
    let terms = format!("{token} 30000~{} {client} {alive}~", random.u64(1..3));
    [
        format!("RPUSH @queue {token}"),
        format!("HSET @waiters {terms}"),
    ]
}

/// The key of a lock that some of three have.
fn held(random: &mut Rng, now: u64, kind: &str, max: u64, before: u64) -> Vec<String> {
    let (mut lines, mut used, mut earliest) = (Vec::new(), 0, now + 600_000);
    // By a clock that was set back since.
    let ahead = [now * 1000 + 456, 10_u64.pow(16)];
    let granted = if one_in(random, 8) {
        *random.choice(&ahead).unwrap()
    } else {
        now * 1000 + 455
    };
    for letter in some_of(random, "ABC") {
        let weight = if kind == "semaphore" {
            random.u64(1..3)
        } else {
            1
        };
        let has_expired = one_in(random, 8);
        let ends = if has_expired {
            now - random.u64(0..2)
        } else {
            now + random.u64(1..600_000)
        };
        lines.push(format!(
            "HSET @ {} {ends}~{weight}~{granted}",
            token(letter)
        ));
        used += weight;
        earliest = earliest.min(ends);
    }
    used += u64::from(one_in(random, 8));
    // After half a day, the number of permits before a resize is kept for another day.
    let kept = if before > 0 && random.bool() {
        HALF_A_DAY + random.u64(0..3) - 1
    } else {
        0
    };
    let expires = now + kept.max(600_000 + random.u64(0..600_000));
    let last = token('D');
    let of =
        format!("{earliest}~{expires}~{used}~{kind}~{max}~{before}~{granted}~{granted}~{last}");
    lines.push(format!("HSET @ lock {of}"));
    lines.push(format!("PEXPIREAT @ {expires}"));
    lines
}

/// The command of a line, on the keys of this lock.
fn command_of(line: &str, lock: &str) -> Cmd {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().unwrap());
    for word in words {
        command.arg(word.replace('@', lock).replace('~', " "));
    }
    command
}

/// What a script answers on a lock in this state, and what it leaves: the fields, the others, and the ttl of the lock.
async fn outcome(
    connection: &mut MultiplexedConnection,
    text: &str,
    lock: &str,
    case: &Case,
) -> (Value, Value, Duration) {
    let keys = ["", "queue", "fence", "waiters"].map(|part| format!("{lock}{part}"));
    let mut all = pipe();
    for line in &case.state {
        all.add_command(command_of(line, lock)).ignore();
    }
    all.cmd("EVAL").arg(text).arg(4).arg(&keys).arg(&case.args);
    all.cmd("EVAL").arg(LEFT).arg(4).arg(&keys);
    all.cmd("PTTL").arg(&keys[0]);
    all.cmd("DEL").arg(&keys).ignore();
    let (answer, left, ttl): (Value, Value, i64) = all.query_async(connection).await.unwrap();
    let ttl = Duration::from_millis(u64::try_from(ttl + 2).unwrap());
    (answer, left, ttl)
}

/// Compares the forms, and tells how many requests went the short way.
async fn compare(server: &TestServer, script: &str, marks: [&str; 2]) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = u64::try_from(now.as_millis()).unwrap();
    let forms = Forms::of(script, marks, now);
    let (mut connection, mut were_short) = (server.connection().await, 0);
    for seed in 0..CASES {
        let case = Case::random(&mut Rng::with_seed(seed), now);
        let about = || format!("{script}, {seed}: {:?} {:?}", case.args, case.state);
        let mut outcomes = Vec::new();
        for (text, lock) in [(&forms.whole, "w"), (&forms.long, "l"), (&forms.short, "s")] {
            outcomes.push(outcome(&mut connection, text, lock, &case).await);
        }
        if outcomes[2].0 == Value::Nil {
            outcomes.pop();
        } else {
            were_short += 1;
        }
        for pair in outcomes.windows(2) {
            let ((one, left, ttl), (other, also_left, other_ttl)) = (&pair[0], &pair[1]);
            assert_eq!((one, left), (other, also_left), "{}", about());
            // A server needs a moment from one to the other.
            assert!(
                ttl.abs_diff(*other_ttl) < Duration::from_secs(20),
                "{ttl:?}, {other_ttl:?}: {}",
                about()
            );
        }
    }
    were_short
}

/// Proves P1.
#[tokio::test]
async fn free_permits_leave_the_same_by_the_short_way_as_by_the_long_one() {
    on_servers(async |rig| {
        let server = rig.the_server();
        let marks = ["if keys < 2 and ", "-- Gives a token the last place"];
        let acquired = compare(server, "permits acquire", marks).await;
        let marks = ["if earliest and ", "-- Constants of the scripts."];
        let released = compare(server, "permits release", marks).await;
        assert!(acquired > CASES / 5, "{acquired}");
        assert!(released > CASES / 10, "{released}");
    })
    .await;
}

//! Random commands.

use fastrand::Rng;

use super::pair::Words;

/// Commands, where a small word stands for what is drawn: `k` a key, `f` a field, `v` a value, `n` a number, `t` a time in
/// milliseconds, `s` one in seconds, `o` options of SET, `c` conditions of EXPIRE.
const COMMANDS: &[&str] = &[
    "GET k",
    "GET k",
    "SET k v",
    "SET k v o",
    "SET k v o",
    "SET k v o",
    "SETNX k v",
    "SETEX k s v",
    "PSETEX k t v",
    "GETSET k v",
    "GETDEL k",
    "MGET k k k",
    "APPEND k v",
    "STRLEN k",
    "INCR k",
    "DECR k",
    "INCRBY k n",
    "DECRBY k n",
    "DEL k",
    "DEL k k",
    "UNLINK k",
    "EXISTS k",
    "EXISTS k k",
    "TYPE k",
    "PTTL k",
    "TTL k",
    "PEXPIRE k t",
    "PEXPIRE k t c",
    "EXPIRE k s",
    "EXPIRE k s c",
    "PEXPIREAT k n",
    "EXPIREAT k n",
    "PERSIST k",
    "RPUSH k v",
    "RPUSH k v v",
    "LPUSH k v v",
    "LPOP k",
    "LPOP k n",
    "RPOP k",
    "RPOP k n",
    "LLEN k",
    "LINDEX k n",
    "LRANGE k n n",
    "LTRIM k n n",
    "LREM k n v",
    "HSET k f v",
    "HSET k f v f v",
    "HMSET k f v",
    "HSETNX k f v",
    "HGET k f",
    "HMGET k f f",
    "HGETALL k",
    "HKEYS k",
    "HVALS k",
    "HLEN k",
    "HDEL k f",
    "HDEL k f f",
    "HEXISTS k f",
    "HSTRLEN k f",
    "HINCRBY k f n",
    "PUBLISH ch v",
    "SPUBLISH ch v",
    "ECHO v",
    "PING",
    "PING v",
    "SELECT 0",
    "SELECT 99",
    "SELECT x",
    "CLIENT GETNAME",
    "CLIENT SETNAME v",
    "CLIENT SETINFO v v",
    "SCRIPT EXISTS v",
    "SCRIPT LOAD v",
    "EVALSHA v 0",
    "FLUSHALL v",
    "CONFIG GET maxmemory-policy",
    "EVAL v n k",
    "NOSUCH k v",
    "CONFIG NOSUCH",
    "SCRIPT NOSUCH",
];

const VALUES: [&str; 12] = [
    "",
    "a",
    "b",
    "a",
    "1",
    "10",
    "-5",
    "007",
    "3.5",
    "9223372036854775807",
    "-9223372036854775808",
    "A B\r\nC",
];

const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "5",
    "100",
    "x",
    "",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
];

/// Times that end neither while a test runs nor soon after it, and times that are none.
const MILLIS: [&str; 8] = [
    "50000",
    "700000",
    "100000",
    "99000",
    "0",
    "-1",
    "x",
    "9223372036854775807",
];

const OPTIONS: [&str; 12] = [
    "NX",
    "XX",
    "GET",
    "KEEPTTL",
    "px 50000",
    "PX 0",
    "EX 100",
    "EX x",
    "PXAT 1000",
    "EXAT 99999999999",
    "EX",
    "what",
];

/// Makes the last word, if it is a time, one that no other command has: the two servers may see another millisecond between two
/// commands, and then a comparison of equal times has two answers.
fn tell_apart(rng: &mut Rng, words: &mut Words) {
    let Some(last) = words.last_mut() else { return };
    let text = String::from_utf8_lossy(last);
    if let Ok(time @ 100..=1_000_000) = text.parse::<u32>() {
        *last = (time + rng.u32(1..40_000)).to_string().into();
    }
}

/// A command, now and then with a word too few or too many.
pub(crate) fn draw(rng: &mut Rng) -> Words {
    let template = rng.choice(COMMANDS).expect("one");
    let mut words: Words = Vec::new();
    for word in template.split(' ') {
        match word {
            "k" => words.push(format!("k{}", rng.u8(0..4)).into()),
            "f" => words.push(format!("f{}", rng.u8(0..4)).into()),
            "v" => words.push(pick(rng, &VALUES)),
            "n" => words.push(pick(rng, &NUMBERS)),
            "t" => words.push(pick(rng, &MILLIS)),
            "s" => words.push(if rng.bool() {
                "100".into()
            } else {
                pick(rng, &MILLIS)
            }),
            "o" => {
                for _ in 0..rng.u8(1..4) {
                    let option = rng.choice(OPTIONS).expect("one");
                    words.extend(option.split(' ').map(Into::into));
                }
            }
            "c" => {
                tell_apart(rng, &mut words);
                for _ in 0..rng.u8(1..3) {
                    words.push(pick(rng, &["NX", "XX", "GT", "LT", "gt", "what"]));
                }
            }
            word if rng.u8(0..8) == 0 => words.push(word.to_ascii_lowercase().into()),
            word => words.push(word.into()),
        }
    }
    match rng.u8(0..40) {
        0 if words.len() > 1 => drop(words.pop()),
        1 => words.push(pick(rng, &VALUES)),
        _ => {}
    }
    words
}

fn pick(rng: &mut Rng, from: &[&str]) -> Vec<u8> {
    rng.choice(from).copied().unwrap_or_default().into()
}

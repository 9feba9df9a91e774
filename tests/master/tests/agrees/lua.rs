//! Scripts that show how values and errors go in and out.

use super::pair::{self, Pair, words};

const SCRIPTS: &[&str] = &[
    "return 1",
    "return 3.99",
    "return -3.99",
    "return 1e15",
    "return 9007199254740993",
    "return 1e300",
    "return 'text'",
    "return ''",
    "return true",
    "return false",
    "return nil",
    "return",
    "return {}",
    "return {1, 'a', {2.7, {}}, true, false, 'end'}",
    "return {1, nil, 3}",
    "return {ok = 'FINE'}",
    "return {err = 'MINE is wrong'}",
    "return {err = 'single'}",
    "return {1, {err = 'inside'}, {ok = 'inside'}}",
    "return redis.status_reply('FINE')",
    "return redis.error_reply('MINE is wrong')",
    "return redis.error_reply('-MINE is wrong')",
    "return redis.error_reply('single')",
    "return redis.error_reply('-single')",
    "return redis.error_reply(1, 2)",
    "return redis.sha1hex('a')",
    "return redis.call('GET', KEYS[1])",
    "return redis.call('GET', KEYS[2])",
    "return redis.call('LPOP', KEYS[1])",
    "return redis.call('GET', 'a', 'b')",
    "return redis.call('NOSUCH')",
    "return redis.call('EVAL', 'return 1', 0)",
    "return redis.call('SUBSCRIBE', 'c')",
    "return redis.call()",
    "return redis.call({})",
    "return redis.call('GET', true)",
    "return redis.call('GET', nil)",
    "return redis.pcall('LPOP', KEYS[1])",
    "return redis.pcall('NOSUCH')",
    "return redis.pcall()",
    "return redis.pcall('GET', {})",
    "local x = redis.pcall('LPOP', KEYS[1]) return x.err",
    "local x = redis.pcall('GET') return x.err",
    "local x = redis.pcall('LPOP', KEYS[1]) error(x)",
    "local x\n\nx = redis.call('LPOP', KEYS[1])\nreturn x",
    "local function f()\n  redis.call('LPOP', KEYS[1])\nend\nf()\nreturn 1",
    "local a, b = pcall(redis.call, 'LPOP', KEYS[1]) return {tostring(a), b.err}",
    "local a, b = pcall(redis.call, 'NOSUCH') return b",
    "local a, b = pcall(error, 'x') return {tostring(a), b}",
    "local a, b = pcall(error, {err = 'MINE x'}) return b",
    "error('a')",
    "error('a', 0)",
    "error({err = 'MINE x'})",
    "error()",
    "error(5)",
    "return nil .. 1",
    "\n\nlocal a = {} return a.b.c",
    "return string.rep()",
    "return undefined",
    "defined = 1",
    "syntax error",
    "return 'unfinished",
    "return tostring(undefined)",
    "return type(print) ",
    "return redis.call('TYPE', KEYS[1])",
    "return redis.call('TYPE', KEYS[1]).ok",
    "return redis.call('SET', KEYS[2], 10/3)",
    "return redis.call('SET', KEYS[2], 1e17, 'GET')",
    "return redis.call('SET', KEYS[2], 1700000000123456)",
    "return redis.call('SET', KEYS[2], 0.1)",
    "return redis.call('SET', KEYS[2], 1e-7)",
    "return redis.call('SET', KEYS[2], -0.5, 'GET')",
    "return redis.call('SET', KEYS[2], 1/0)",
    "return redis.call('SET', KEYS[2], 2^53)",
    "return redis.call('set', KEYS[2], 'x', 'nx')",
    "return redis.call('PEXPIRE', KEYS[1], 50000.0)",
    "return redis.call('PEXPIRE', KEYS[1], 1.5)",
    "return redis.call('MGET', KEYS[1], 'none', KEYS[1])",
    "redis.call('HSET', 'h', 'b', 1, 'a', 2) return redis.call('HGETALL', 'h')",
    "return {redis.call('LPOP', 'none', 2), redis.call('LPOP', 'none')}",
    "return redis.call('INCRBY', 'counter', 9007199254740993)",
    "return string.format('%.0f', redis.call('INCRBY', 'counter', '9007199254740993'))",
    "return tostring(redis.call('INCRBY', 'counter', 1))",
    "return {#KEYS, #ARGV, KEYS[1], ARGV[1], ARGV[2]}",
    "KEYS[5] = 'x' ARGV[9] = 'y' return #KEYS",
    "return {KEYS[3], KEYS[4], KEYS[5], ARGV[9]}",
    "return unpack(ARGV)",
    "return {unpack({1, 2, 3}, 2)}",
    "return select('#', unpack(ARGV))",
    "return {string.find('a.b', '.', 1, true), string.match('12 x', '^(%d+) (.*)$')}",
    "return tonumber('0x10')",
    "return tonumber(' 12 ')",
    "return '5' + 1",
    "return 1700000000 * 1000000 .. ''",
    "return math.max(1, '5' + 0, 3)",
    "return table.concat(KEYS, ',')",
    "return redis.call('PING')",
    "return redis.call('ECHO', 'x')",
    "redis.call('SELECT', 0) return redis.call('DBSIZE')",
    "return redis.call('PUBLISH', 'ch', 'from a script')",
    "redis.log(redis.LOG_NOTICE, 'x') return redis.LOG_WARNING",
    "return redis.call('SET', KEYS[1], 'x', 'PX', 0)",
    "local n = 0 for _ in pairs(redis.pcall('NOSUCH')) do n = n + 1 end return n",
    "return loadstring('return 7')()",
    "local t = setmetatable({}, {__index = function() return 'm' end}) return t.x",
    "local f = function() return 'tail' end return f()",
    "return redis.call('LPOP', KEYS[1]) or 1",
    "string.sub = 1",
    "redis.call = 1",
    "redis = 1",
    "KEYS = 1",
];

#[tokio::test]
async fn values_and_errors_of_scripts_are_as_on_a_server() {
    let server = pair::server().await;
    for protocol in [2, 3] {
        let mut pair = Pair::new(&server, protocol);
        pair.listen("ch");
        pair.ask(&words("SET k text PX 90000"));
        for script in SCRIPTS {
            for arguments in ["2 k k2 first second", "0"] {
                let mut call = vec![b"EVAL".to_vec(), script.as_bytes().to_vec()];
                call.extend(words(arguments));
                pair.ask(&call);
            }
        }
        pair.look();
        pair.agree();
    }
}

#[tokio::test]
async fn a_client_that_publishes_to_itself_hears_it_before_the_reply() {
    let server = pair::server().await;
    let mut pair = Pair::new(&server, 3);
    pair.ask(&words("SUBSCRIBE mine other"));
    pair.ask(&words("PUBLISH mine text"));
    let script =
        "redis.call('PUBLISH', 'mine', 'a') redis.call('PUBLISH', 'other', 'b') return 'done'";
    pair.ask(&vec![b"EVAL".to_vec(), script.into(), b"0".to_vec()]);
    pair.ask(&words("SSUBSCRIBE shard"));
    pair.ask(&words("SPUBLISH shard text"));
    pair.ask(&words("UNSUBSCRIBE mine"));
    pair.ask(&words("UNSUBSCRIBE none"));
    pair.ask(&words("UNSUBSCRIBE"));
    pair.ask(&words("UNSUBSCRIBE"));
    pair.ask(&words("SUNSUBSCRIBE"));
    pair.ask(&words("SUNSUBSCRIBE"));
    pair.agree();
}

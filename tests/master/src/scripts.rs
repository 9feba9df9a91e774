//! Scripts: kept by the hash of their text, and run in one interpreter.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::rc::Rc;

use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value};
use sha1_smol::Sha1;

use crate::commands::ScriptCommand;
use crate::convert::{self, Convert};
use crate::number;
use crate::reply::{Answer, NO_INTEGER, Refusal, Reply, wrong_arity};
use crate::state::State;
use crate::{admin, sandbox};

/// The hash of a script's text, in small hexadecimal letters.
pub(crate) type Hash = [u8; 40];

pub(crate) struct Scripts {
    lua: Lua,
    known: HashMap<Hash, Script, BuildHasherDefault<DefaultHasher>>,
    /// Calls of each script since the start, by the hash; a script that was forgotten keeps its number.
    calls: BTreeMap<Hash, u64>,
    /// The globals of scripts.
    globals: Table,
    keys: Words,
    args: Words,
    protected_call: Function,
    handler: Function,
    convert: Convert,
    /// What scripts work on: lent for the time of a call.
    state: Rc<RefCell<State>>,
}

struct Script {
    function: Function,
    calls: u64,
}

/// A table that each call fills anew.
struct Words {
    table: Table,
    len: usize,
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts")
            .field("known", &self.known.len())
            .finish_non_exhaustive()
    }
}

impl Words {
    fn new(lua: &Lua) -> mlua::Result<Self> {
        Ok(Self {
            table: lua.create_table()?,
            len: 0,
        })
    }

    fn fill(&mut self, lua: &Lua, words: &[&[u8]]) -> mlua::Result<()> {
        for (place, word) in words.iter().enumerate() {
            self.table.raw_set(place + 1, lua.create_string(word)?)?;
        }
        // The script may have added to it.
        let len = self.len.max(self.table.raw_len());
        for place in words.len()..len {
            self.table.raw_set(place + 1, Value::Nil)?;
        }
        self.len = words.len();
        Ok(())
    }
}

impl Scripts {
    pub(crate) fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        // The functions `pcall` and `xpcall` of Lua itself: they keep tables as errors.
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(libraries, options)?;
        let state = Rc::new(RefCell::new(State::default()));
        let convert = Convert::new(&lua)?;
        let protected_call = lua.globals().get("xpcall")?;
        let handler = convert::error_handler(&lua)?;
        let (keys, args) = (Words::new(&lua)?, Words::new(&lua)?);
        let globals = sandbox::globals(&lua, &state)?;
        globals.inner.raw_set("KEYS", &keys.table)?;
        globals.inner.raw_set("ARGV", &args.table)?;
        Ok(Self {
            known: HashMap::default(),
            calls: BTreeMap::new(),
            globals: globals.outer,
            keys,
            args,
            protected_call,
            handler,
            convert,
            state,
            lua,
        })
    }

    pub(crate) fn forget(&mut self) {
        for (hash, script) in self.known.drain() {
            *self.calls.entry(hash).or_default() += script.calls;
        }
    }

    /// Calls of a script so far.
    pub(crate) fn calls(&self, hash: &str) -> u64 {
        let Some(hash) = as_hash(hash.as_bytes()) else {
            return 0;
        };
        let now = self.known.get(&hash).map_or(0, |script| script.calls);
        self.calls.get(&hash).map_or(now, |before| before + now)
    }

    pub(crate) fn serve(
        &mut self,
        command: ScriptCommand,
        words: &[&[u8]],
        state: &mut State,
    ) -> Answer {
        match command {
            ScriptCommand::ByText => {
                let (keys, args) = split(words)?;
                let hash = self.load(words[1])?;
                self.run(&hash, keys, args, state)
            }
            ScriptCommand::ByHash => {
                let (keys, args) = split(words)?;
                let hash = as_hash(words[1]).filter(|hash| self.known.contains_key(hash));
                let hash = hash.ok_or("NOSCRIPT No matching script. Please use EVAL.")?;
                self.run(&hash, keys, args, state)
            }
            ScriptCommand::Cache => self.cache(words),
        }
    }

    fn cache(&mut self, words: &[&[u8]]) -> Answer {
        let sub = words[1].to_ascii_lowercase();
        match (&*sub, &words[2..]) {
            (b"load", [text]) => self.load(text).map(Reply::bulk),
            (b"load", _) => Err(wrong_arity("script|load")),
            (b"exists", []) => Err(wrong_arity("script|exists")),
            (b"exists", hashes) => {
                let is_known = |word: &&[u8]| {
                    let hash = Hash::try_from(*word).ok();
                    Reply::flag(hash.is_some_and(|hash| self.known.contains_key(&hash)))
                };
                Ok(Reply::Array(hashes.iter().map(is_known).collect()))
            }
            (b"flush", rest) => {
                let is_known = |word: &[u8]| {
                    word.eq_ignore_ascii_case(b"SYNC") || word.eq_ignore_ascii_case(b"ASYNC")
                };
                if rest.len() > 1 || rest.first().is_some_and(|word| !is_known(word)) {
                    return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
                }
                self.forget();
                Ok(Reply::OK)
            }
            _ => Err(admin::unknown_subcommand("SCRIPT", words[1])),
        }
    }

    /// Compiles a script, unless it is known.
    fn load(&mut self, text: &[u8]) -> Result<Hash, Refusal> {
        let digest = Sha1::from(text).digest().to_string();
        let mut hash = [0; 40];
        hash.copy_from_slice(digest.as_bytes());
        if self.known.contains_key(&hash) {
            return Ok(hash);
        }
        let chunk = self.lua.load(text).set_name("@user_script");
        let chunk = chunk.set_environment(self.globals.clone());
        let function = chunk.into_function().map_err(|error| {
            let why = match &error {
                mlua::Error::SyntaxError { message, .. } => message.clone(),
                other => other.to_string(),
            };
            format!("ERR Error compiling script (new function): {why}")
        })?;
        self.known.insert(hash, Script { function, calls: 0 });
        Ok(hash)
    }

    fn run(&mut self, hash: &Hash, keys: &[&[u8]], args: &[&[u8]], state: &mut State) -> Answer {
        let Some(script) = self.known.get_mut(hash) else {
            return Err("NOSCRIPT No matching script. Please use EVAL.".into());
        };
        script.calls += 1;
        state.begin_script();
        std::mem::swap(state, &mut self.state.borrow_mut());
        let filled = self.keys.fill(&self.lua, keys);
        let filled = filled.and_then(|()| self.args.fill(&self.lua, args));
        let call = (&script.function, &self.handler);
        let ended = filled.and_then(|()| self.protected_call.call::<(bool, Value)>(call));
        std::mem::swap(state, &mut self.state.borrow_mut());
        match ended {
            Ok((true, value)) => Ok(self.convert.reply(&value)),
            Ok((false, value)) => Err(self.convert.failure(&value, hash).into()),
            Err(error) => {
                let hash = String::from_utf8_lossy(hash);
                Err(format!("ERR Error running script {hash}, {error}").into())
            }
        }
    }
}

/// Some words of a request.
type Slice<'a, 'b> = &'a [&'b [u8]];

/// The keys and the other arguments of a call.
fn split<'a, 'b>(words: Slice<'a, 'b>) -> Result<(Slice<'a, 'b>, Slice<'a, 'b>), Refusal> {
    let count = number::parse(words[2]).ok_or(NO_INTEGER)?;
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    let too_many = "ERR Number of keys can't be greater than number of args";
    Ok(words[3..].split_at_checked(count).ok_or(too_many)?)
}

fn as_hash(word: &[u8]) -> Option<Hash> {
    let mut hash = Hash::try_from(word).ok()?;
    hash.make_ascii_lowercase();
    Some(hash)
}

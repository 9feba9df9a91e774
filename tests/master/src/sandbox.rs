//! What a script can reach: the libraries of Lua without files, time and chance, and the server.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};
use sha1_smol::Sha1;

use crate::convert::{self, Raised};
use crate::number;
use crate::reply::{Answer, Reply};
use crate::state::State;

/// Functions that read files, or that a server does not have.
const REMOVED: [&str; 6] = [
    "dofile", "loadfile", "newproxy", "print", "require", "module",
];

/// The globals of scripts.
pub(crate) struct Globals {
    /// What scripts see.
    pub(crate) outer: Table,
    /// What is behind it.
    pub(crate) inner: Table,
}

/// Makes the globals of scripts.
pub(crate) fn globals(lua: &Lua, state: &Rc<RefCell<State>>) -> mlua::Result<Globals> {
    let inner = lua.create_table()?;
    for pair in lua.globals().pairs::<Value, Value>() {
        let (name, value) = pair?;
        inner.raw_set(name, value)?;
    }
    for name in REMOVED {
        inner.raw_set(name, Value::Nil)?;
    }
    let math: Table = inner.raw_get("math")?;
    // Their numbers are the process's, and would differ from run to run.
    math.raw_set("random", Value::Nil)?;
    math.raw_set("randomseed", Value::Nil)?;
    let real: Function = inner.raw_get("pcall")?;
    let protected =
        lua.create_function(move |lua, args: MultiValue| convert::caught(lua, real.call(args)?))?;
    inner.raw_set("pcall", protected)?;
    inner.raw_set("redis", api(lua, state)?)?;

    for name in ["math", "redis", "string", "table"] {
        let library: Table = inner.raw_get(name)?;
        inner.raw_set(name, sealed(lua, &library)?)?;
    }

    let missing = lua.create_function(|lua, (_, name): (Value, Value)| -> mlua::Result<Value> {
        let name = name.to_string()?;
        let what = "Script attempted to access nonexistent global variable";
        Err(located(lua, &format!("{what} '{name}'")))
    })?;
    let meta = lua.create_table()?;
    meta.raw_set("__index", missing)?;
    inner.set_metatable(Some(meta))?;
    let outer = sealed(lua, &inner)?;
    inner.raw_set("_G", &outer)?;
    Ok(Globals { outer, inner })
}

/// An empty table in front of another, so that nothing can be set. `rawset` is not kept from it.
fn sealed(lua: &Lua, inner: &Table) -> mlua::Result<Table> {
    let fixed = lua.create_function(|lua, _: MultiValue| -> mlua::Result<()> {
        Err(located(lua, "Attempt to modify a readonly table"))
    })?;
    let meta = lua.create_table()?;
    meta.raw_set("__index", inner)?;
    meta.raw_set("__newindex", fixed)?;
    let outer = lua.create_table()?;
    outer.set_metatable(Some(meta))?;
    Ok(outer)
}

/// An error, with the line of the script in front.
fn located(lua: &Lua, what: &str) -> mlua::Error {
    let place = lua.inspect_stack(1, |debug| {
        let line = debug.current_line()?;
        Some(format!("{}:{line}: ", debug.source().short_src?))
    });
    let place = place.flatten().unwrap_or_default();
    mlua::Error::external(Raised(format!("ERR {place}{what}")))
}

/// The table `redis`.
fn api(lua: &Lua, state: &Rc<RefCell<State>>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let shared = Rc::clone(state);
    let call = lua.create_function(move |lua, words: MultiValue| match ask(&shared, &words) {
        Ok(Reply::Error(what)) | Err(what) => Err(mlua::Error::external(Raised(what.into_owned()))),
        Ok(reply) => convert::value(lua, reply),
    })?;
    table.raw_set("call", call)?;
    let shared = Rc::clone(state);
    let call = lua.create_function(move |lua, words: MultiValue| {
        let reply = ask(&shared, &words).unwrap_or_else(Reply::Error);
        convert::value(lua, reply)
    })?;
    table.raw_set("pcall", call)?;
    table.raw_set("error_reply", single(lua, "err")?)?;
    table.raw_set("status_reply", single(lua, "ok")?)?;
    let hash = lua.create_function(|_, text: LuaString| {
        Ok(Sha1::from(&*text.as_bytes()).digest().to_string())
    })?;
    table.raw_set("sha1hex", hash)?;
    // A log that nobody reads.
    table.raw_set("log", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    for (name, level) in [("DEBUG", 0), ("VERBOSE", 1), ("NOTICE", 2), ("WARNING", 3)] {
        table.raw_set(format!("LOG_{name}"), level)?;
    }
    Ok(table)
}

/// A function that makes a table of one field.
fn single(lua: &Lua, field: &'static str) -> mlua::Result<Function> {
    lua.create_function(move |lua, values: MultiValue| {
        let mut values = values.into_iter();
        let (Some(Value::String(text)), None) = (values.next(), values.next()) else {
            let why = "ERR wrong number or type of arguments".into();
            return convert::value(lua, Reply::Error(why));
        };
        let table = lua.create_table()?;
        if field == "err" {
            let text = text.to_string_lossy();
            table.raw_set(field, with_code(text.strip_prefix('-').unwrap_or(&text)))?;
        } else {
            table.raw_set(field, text)?;
        }
        Ok(Value::Table(table))
    })
}

/// An error of a single word has the general code.
fn with_code(text: &str) -> String {
    if text.contains(' ') {
        text.to_owned()
    } else {
        format!("ERR {text}")
    }
}

/// Runs a command for a script.
fn ask(state: &RefCell<State>, values: &MultiValue) -> Answer {
    if values.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call".into());
    }
    let mut words = Vec::with_capacity(values.len());
    for value in values {
        words.push(match value {
            Value::String(text) => Word::Text(text.as_bytes()),
            Value::Integer(number) => Word::Number(number::argument(*number as f64)),
            Value::Number(number) => Word::Number(number::argument(*number)),
            _ => {
                let why = "ERR Lua redis lib command arguments must be strings or integers";
                return Err(why.into());
            }
        });
    }
    let words: Vec<&[u8]> = words.iter().map(Word::bytes).collect();
    state.borrow_mut().call(&words)
}

enum Word {
    Text(mlua::BorrowedBytes),
    Number(String),
}

impl Word {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Number(text) => text.as_bytes(),
        }
    }
}

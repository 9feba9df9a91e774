//! Values of Lua and replies of the server, each as the other.

use mlua::{Error, Function, IntoLua, Lua, LuaString, MultiValue, Table, Value};

use crate::number;
use crate::reply::Reply;
use crate::scripts::Hash;

/// An error that `redis.call` raises. It travels through the interpreter as an error of Rust, and becomes the table that a
/// script knows where one is caught.
#[derive(Debug)]
pub(crate) struct Raised(pub(crate) String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// The names of fields, made once.
pub(crate) struct Convert {
    err: LuaString,
    ok: LuaString,
}

impl Convert {
    pub(crate) fn new(lua: &Lua) -> mlua::Result<Self> {
        Ok(Self {
            err: lua.create_string("err")?,
            ok: lua.create_string("ok")?,
        })
    }

    /// What a script returns, as its reply.
    pub(crate) fn reply(&self, value: &Value) -> Reply {
        match value {
            Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
            Value::Integer(number) => Reply::Int(*number),
            Value::Number(number) => Reply::Int(truncated(*number)),
            Value::Boolean(true) => Reply::Int(1),
            Value::Table(table) => self.table(table),
            _ => Reply::Nil,
        }
    }

    fn table(&self, table: &Table) -> Reply {
        if let Ok(Value::String(text)) = table.raw_get(&self.err) {
            return Reply::Error(lossy(&text).into());
        }
        if let Ok(Value::String(text)) = table.raw_get(&self.ok) {
            return Reply::Status(lossy(&text).into());
        }
        let mut replies = Vec::with_capacity(table.raw_len());
        // Up to the first hole: a nil ends the list.
        for place in 1_usize.. {
            match table.raw_get(place) {
                Ok(Value::Nil) | Err(_) => break,
                Ok(value) => replies.push(self.reply(&value)),
            }
        }
        Reply::Array(replies)
    }

    /// The error with which a script ended; the handler has made it a table.
    pub(crate) fn failure(&self, value: &Value, hash: &Hash) -> String {
        let Value::Table(table) = value else {
            return "ERR execution failure".to_owned();
        };
        let text = |value: mlua::Result<Value>| match value {
            Ok(Value::String(text)) => Some(lossy(&text)),
            Ok(Value::Integer(number)) => Some(number.to_string()),
            _ => None,
        };
        let what = text(table.raw_get(&self.err)).unwrap_or_default();
        match (text(table.raw_get("source")), text(table.raw_get("line"))) {
            (Some(source), Some(line)) => {
                let hash = String::from_utf8_lossy(hash);
                format!("{what} script: {hash}, on {source}:{line}.")
            }
            _ => what,
        }
    }
}

/// As C turns a number into a whole one: what does not fit becomes the least.
fn truncated(number: f64) -> i64 {
    let limit = i64::MIN as f64;
    if (limit..-limit).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

fn lossy(text: &LuaString) -> String {
    String::from_utf8_lossy(&text.as_bytes()).into_owned()
}

/// A reply as a script sees it.
pub(crate) fn value(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    match reply {
        // All numbers of this interpreter are floating ones.
        Reply::Int(number) => Ok(Value::Number(number as f64)),
        Reply::Bulk(bytes) => lua.create_string(bytes).map(Value::String),
        Reply::Verbatim(text) => lua.create_string(text).map(Value::String),
        Reply::Nil | Reply::NilArray => Ok(Value::Boolean(false)),
        Reply::Status(text) => field(lua, "ok", &text)?.into_lua(lua),
        Reply::Error(text) => {
            let table = field(lua, "err", &text)?;
            // A mark of the server's own, which a script can see.
            table.raw_set("ignore_error_stats_update", true)?;
            table.into_lua(lua)
        }
        Reply::Array(replies) | Reply::Push(replies) | Reply::Frames(replies) => {
            let replies = replies.into_iter().map(|reply| value(lua, reply));
            let replies = replies.collect::<mlua::Result<Vec<_>>>()?;
            lua.create_sequence_from(replies).map(Value::Table)
        }
        Reply::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            value(lua, Reply::Array(flat.collect()))
        }
    }
}

fn field(lua: &Lua, name: &str, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, text)?;
    Ok(table)
}

/// Makes any error the table that scripts know.
pub(crate) fn error_table(lua: &Lua, error: Value) -> mlua::Result<Table> {
    let text = match error {
        Value::Table(table) => return Ok(table),
        Value::String(text) => format!("ERR {}", lossy(&text)),
        Value::Error(error) => raised(&error),
        Value::Integer(number) => format!("ERR {number}"),
        Value::Number(number) => format!("ERR {}", number::argument(number)),
        other => format!("ERR {}", other.to_string()?),
    };
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    Ok(table)
}

/// The text of an error that Rust has raised.
fn raised(error: &Error) -> String {
    match error.downcast_ref::<Raised>() {
        Some(raised) => raised.0.clone(),
        None => format!("ERR {error}"),
    }
}

/// Looks where an error was raised: in the script, or in a function of the library, and then in what has called it.
pub(crate) fn error_handler(lua: &Lua) -> mlua::Result<Function> {
    lua.create_function(|lua, error: Value| {
        let table = error_table(lua, error)?;
        let place = |level| {
            lua.inspect_stack(level, |debug| {
                let source = debug.source();
                let line = debug
                    .current_line()
                    .and_then(|line| i64::try_from(line).ok());
                let name = source
                    .source
                    .map(std::borrow::Cow::into_owned)
                    .unwrap_or_default();
                (source.what == "C", name, line.unwrap_or(-1))
            })
        };
        // This function itself is two levels.
        let mut found = place(2);
        if found.as_ref().is_some_and(|(is_c, ..)| *is_c) {
            found = place(3);
        }
        if let Some((_, name, line)) = found {
            table.raw_set("source", name)?;
            table.raw_set("line", line)?;
        }
        Ok(table)
    })
}

/// What `pcall` gives back to a script: the text of an error, where it has one.
pub(crate) fn caught(lua: &Lua, mut results: MultiValue) -> mlua::Result<MultiValue> {
    if matches!(results.front(), Some(Value::Boolean(false)))
        && let Some(error @ (Value::Error(_) | Value::Table(_))) = results.get_mut(1)
    {
        let table = error_table(lua, error.clone())?;
        *error = match table.raw_get("err")? {
            text @ (Value::String(_) | Value::Integer(_) | Value::Number(_)) => text,
            _ => Value::Table(table),
        };
    }
    Ok(results)
}

//! Everything that a program says through `tracing`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps every span and event of this thread, from `TRACE` on, while it
/// lives. A single-threaded runtime runs its tasks on this thread, too.
#[derive(Debug)]
#[must_use = "it captures until it is dropped"]
pub struct Capture {
    heard: Arc<Mutex<Heard>>,
    _default: DefaultGuard,
}

/// A span or an event, with the fields it has been given so far.
#[derive(Debug, Clone)]
pub struct Said {
    /// The name of the span; of an event, where it is in the source.
    pub name: &'static str,
    /// How important it is.
    pub level: Level,
    /// What was recorded, in full: a later record does not hide an earlier.
    pub fields: BTreeMap<&'static str, Vec<String>>,
    /// The module that said it.
    pub target: &'static str,
}

#[derive(Debug, Default)]
struct Heard {
    /// By id, from 1 on.
    spans: Vec<Said>,
    events: Vec<Said>,
}

impl Capture {
    /// Begins to listen.
    pub fn start() -> Self {
        Nobody::listens_elsewhere();
        let heard = Arc::<Mutex<Heard>>::default();
        let listener = Listener(Arc::clone(&heard));
        Self {
            heard,
            _default: tracing::subscriber::set_default(listener),
        }
    }

    /// Every event until now.
    #[must_use]
    pub fn events(&self) -> Vec<Said> {
        lock(&self.heard).events.clone()
    }

    /// Every span of this name until now.
    #[must_use]
    pub fn spans(&self, name: &str) -> Vec<Said> {
        let heard = lock(&self.heard);
        let named = heard.spans.iter().filter(|span| span.name == name);
        named.cloned().collect()
    }

    /// All of it, as the most talkative log would show it.
    #[must_use]
    pub fn text(&self) -> String {
        let heard = lock(&self.heard);
        format!("{:?}\n{:?}", heard.spans, heard.events)
    }
}

impl Said {
    /// The last value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.last().map(String::as_str)
    }

    /// The text of an event.
    #[must_use]
    pub fn message(&self) -> &str {
        self.field("message").unwrap_or_default()
    }

    fn new(metadata: &'static Metadata<'static>) -> Self {
        Self {
            name: metadata.name(),
            level: *metadata.level(),
            fields: BTreeMap::new(),
            target: metadata.target(),
        }
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let values = self.fields.entry(field.name()).or_default();
        values.push(format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields
            .entry(field.name())
            .or_default()
            .push(value.to_owned());
    }
}

struct Listener(Arc<Mutex<Heard>>);

impl Subscriber for Listener {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // Asked each time: other threads of the test program do not listen.
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut said = Said::new(span.metadata());
        span.record(&mut said);
        let mut heard = lock(&self.0);
        heard.spans.push(said);
        Id::from_u64(heard.spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let index = span.into_u64() as usize - 1;
        if let Some(said) = lock(&self.0).spans.get_mut(index) {
            values.record(said);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = Said::new(event.metadata());
        event.record(&mut said);
        lock(&self.0).events.push(said);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Listens for the threads that capture nothing. Without it the first of them to pass an event while only one captures
/// would switch that event off for all: `tracing` remembers its thread's answer, not ours.
struct Nobody;

impl Nobody {
    fn listens_elsewhere() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // A program that listens itself has done what is needed.
            let _ = tracing::subscriber::set_global_default(Self);
        });
    }
}

impl Subscriber for Nobody {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

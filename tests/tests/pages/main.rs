//! What the compiler does not know of the source and of the pages: words, structure, named files, errors and promises.

mod errors;
mod source;

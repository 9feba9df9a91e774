include!("../launch.rs");

//! What a job is going to do to the machine, said before it does anything.

use crate::{apt, server};

/// The missing packages that the job installs, and the service that it stops.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    packages: Vec<&'static str>,
    service: Option<&'static str>,
}

impl Plan {
    /// For a job that runs on a server, perhaps with a browser as well.
    pub(crate) fn look(with_browser: bool) -> Self {
        let server = server::missing_package();
        let browser = apt::missing_browser().filter(|_| with_browser);
        Self {
            packages: server.into_iter().chain(browser).collect(),
            service: server.and_then(|_| server::service_to_stop()),
        }
    }

    /// Says it, or nothing where nothing is to be done.
    pub(crate) fn say(&self) {
        if let Some(sentence) = self.sentence() {
            println!("{sentence}");
        }
    }

    fn sentence(&self) -> Option<String> {
        if self.packages.is_empty() {
            return None;
        }
        let noun = if self.packages.len() == 1 {
            "package"
        } else {
            "packages"
        };
        let names = self.packages.join(" and ");
        let service = self.service.map_or_else(String::new, |service| {
            format!(", and stops the service {service} that comes with it")
        });
        Some(format!(
            "this job installs Debian's {noun} {names} with apt-get{service}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;

    fn said(packages: &[&'static str], service: Option<&'static str>) -> Option<String> {
        let packages = packages.to_vec();
        Plan { packages, service }.sentence()
    }

    #[test]
    fn nothing_is_said_where_nothing_is_missing() {
        assert_eq!(said(&[], None), None);
    }

    #[test]
    fn missing_packages_are_named_and_the_service_that_is_stopped() {
        assert_eq!(
            said(&["chromium"], None).as_deref(),
            Some("this job installs Debian's package chromium with apt-get")
        );
        let service = Some("redis-server");
        assert_eq!(
            said(&["redis-server", "chromium"], service).as_deref(),
            Some(
                "this job installs Debian's packages redis-server and chromium with apt-get, \
                 and stops the service redis-server that comes with it"
            )
        );
    }
}

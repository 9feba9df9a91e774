//! The links of the pages: in the repository, and in the documentation of the library, which has to be built before.
//!
//! Links to other sites are not followed, since a test has no network.
//!
//! `lychee` follows links, too. Debian does not have it, to compile its 517 crates takes minutes, and it does not know that an address on
//! docs.rs or in the repository means a file here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::run::root;

/// The pages that users read, besides those in `docs`.
const PAGES: [&str; 7] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "SECURITY.md",
    "lock-macros/README.md",
    "lock-cli/README.md",
];

/// The documentation of the library on docs.rs.
const DOCS: &str = "https://docs.rs/lock-core/latest/";

/// The address of the project, from `Cargo.toml`.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Fails with all links that lead nowhere.
pub(crate) fn check() -> Result<(), String> {
    let mut pages: Vec<PathBuf> = PAGES.map(|page| root().join(page)).into();
    let folder = root().join("docs");
    let entries = fs::read_dir(&folder).map_err(|error| error.to_string())?;
    pages.extend(entries.flatten().map(|entry| entry.path()));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut broken = Vec::new();
    let mut count = 0;
    for page in &pages {
        let text = fs::read_to_string(page).map_err(|error| error.to_string())?;
        for link in links(&text) {
            count += 1;
            if let Err(why) = follow(page, &link) {
                let page = page.strip_prefix(root()).unwrap_or(page).display();
                broken.push(format!("{page}: {link}: {why}"));
            }
        }
    }
    // The built pages have the links of the comments as well.
    let (in_docs, more) = built(&root().join("target/doc"))?;
    count += in_docs;
    broken.extend(more);
    println!("{count} links");
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!("broken links:\n{}", broken.join("\n")))
}

/// The addresses of the links and pictures of a page, without those inside of blocks of code.
fn links(text: &str) -> BTreeSet<String> {
    let mut links = BTreeSet::new();
    let mut code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        if code {
            continue;
        }
        // `[name]: address`
        if let Some((_, address)) = line.split_once("]: ")
            && line.starts_with('[')
            && !address.contains(' ')
        {
            links.insert(address.to_owned());
        }
        // `[text](address)`
        for rest in line.split("](").skip(1) {
            if let Some((address, _)) = rest.split_once(')') {
                links.insert(address.to_owned());
            }
        }
    }
    links
}

/// Whether a link leads anywhere; the error says why not.
fn follow(page: &Path, link: &str) -> Result<(), String> {
    let (address, anchor) = link.split_once('#').unwrap_or((link, ""));
    if address.is_empty() {
        return has_anchor(page, anchor);
    }
    if let Some(path) = address.strip_prefix(DOCS) {
        let file = root().join("target/doc").join(path);
        return file_with_anchor(&file, anchor);
    }
    let raw = REPOSITORY.replace("https://github.com/", "https://raw.githubusercontent.com/");
    let ours = [
        format!("{REPOSITORY}/blob/main/"),
        format!("{REPOSITORY}/tree/main/"),
        format!("{raw}/main/"),
    ];
    if let Some(path) = ours.iter().find_map(|prefix| address.strip_prefix(prefix)) {
        return file_with_anchor(&root().join(path), anchor);
    }
    // A page that the site of the repository has by itself.
    if address.starts_with(&format!("{REPOSITORY}/security/")) {
        return Ok(());
    }
    if address.starts_with("https://") {
        let host = address.split('/').nth(2).unwrap_or_default();
        let is_ours = address.contains("lock-core") && host.starts_with("github");
        return if is_ours {
            Err(format!("the repository is {REPOSITORY}"))
        } else {
            Ok(())
        };
    }
    let folder = page.parent().unwrap_or(page);
    file_with_anchor(&folder.join(address), anchor)
}

fn file_with_anchor(file: &Path, anchor: &str) -> Result<(), String> {
    if !file.exists() {
        return Err("there is no such file".into());
    }
    has_anchor(file, anchor)
}

/// Whether a page has a heading of this name, or an HTML page an element.
fn has_anchor(page: &Path, anchor: &str) -> Result<(), String> {
    if anchor.is_empty() {
        return Ok(());
    }
    let text = fs::read_to_string(page).map_err(|error| error.to_string())?;
    let found = if page
        .extension()
        .is_some_and(|extension| extension == "html")
    {
        text.contains(&format!("id=\"{anchor}\""))
    } else {
        text.lines()
            .filter(|line| line.starts_with('#'))
            .any(|line| slug(line) == anchor)
    };
    if found {
        Ok(())
    } else {
        Err("there is no such heading".into())
    }
}

/// The anchor of a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The links of the built pages that can be reached from the front page: their number, and the broken ones.
fn built(docs: &Path) -> Result<(usize, Vec<String>), String> {
    let mut pages = vec![docs.join("lock_core/index.html")];
    let mut seen = BTreeSet::from_iter(pages.clone());
    let mut count = 0;
    let mut broken = Vec::new();
    while let Some(page) = pages.pop() {
        let shown = page.strip_prefix(docs).unwrap_or(&page).display();
        let text = fs::read_to_string(&page).map_err(|error| format!("{shown}: {error}"))?;
        let links = text.split(" href=\"").skip(1);
        let pictures = text.split(" src=\"").skip(1);
        for part in links.chain(pictures) {
            let link = part.split('"').next().unwrap_or_default();
            if link.starts_with("https://") && link.contains("/lock-core/") {
                count += 1;
                if let Err(why) = follow(&page, link) {
                    broken.push(format!("{shown}: {link}: {why}"));
                }
                continue;
            }
            let (address, anchor) = link.split_once('#').unwrap_or((link, ""));
            // Not ours to check: other sites, the pages of sources, and the files of rustdoc.
            let foreign = ["://", "/src/", "static.files", "help.html", "settings.html"];
            // Nor what the documentation of a foreign trait names by its path alone: no file has such a name.
            let is_path = address.contains("::") || !(address.is_empty() || address.contains('.'));
            if link.is_empty() || is_path || foreign.iter().any(|part| address.contains(part)) {
                continue;
            }
            count += 1;
            let target = target(&page, address);
            match file_with_anchor(&target, anchor) {
                Err(why) => broken.push(format!("{shown}: {link}: {why}")),
                Ok(()) if target.extension().is_some_and(|kind| kind == "html") => {
                    if seen.insert(target.clone()) {
                        pages.push(target);
                    }
                }
                Ok(()) => {}
            }
        }
    }
    Ok((count, broken))
}

/// The file of a relative address, without `..`.
fn target(page: &Path, address: &str) -> PathBuf {
    let mut target = page.to_owned();
    if address.is_empty() {
        return target;
    }
    target.pop();
    for part in address.split('/') {
        match part {
            ".." => drop(target.pop()),
            "." | "" => {}
            part => target.push(part),
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{REPOSITORY, follow, links, slug, target};
    use crate::run::root;

    #[test]
    fn links_are_found_in_text_and_not_in_code() {
        let text = "[a](x.md) ![b](y.svg)\n```text\n[c](z.md)\n```\n[d]: https://e/f\n";
        let found: Vec<_> = links(text).into_iter().collect();
        assert_eq!(found, ["https://e/f", "x.md", "y.svg"]);
    }

    #[test]
    fn an_address_is_relative_to_its_page() {
        let page = Path::new("/doc/a/b/index.html");
        assert_eq!(target(page, "../c.html"), Path::new("/doc/a/c.html"));
        assert_eq!(target(page, ""), page);
    }

    #[test]
    fn a_heading_has_the_anchor_that_its_page_gives_it() {
        assert_eq!(slug("## What a failover loses"), "what-a-failover-loses");
        assert_eq!(slug("# `#[key]` on a parameter"), "key-on-a-parameter");
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let page = root().join("README.md");
        let good = format!("{REPOSITORY}/blob/main/Cargo.toml");
        assert_eq!(follow(&page, &good), Ok(()));
        assert_eq!(follow(&page, "#licence"), Ok(()));
        let report = "/security/advisories/new";
        assert_eq!(follow(&page, &format!("{REPOSITORY}{report}")), Ok(()));
        for bad in [
            "docs/nothing.md",
            "#nothing",
            "docs/which-lock.md#nothing",
            "https://github.com/another/lock-core/blob/main/Cargo.toml",
            "https://github.com/another/lock-core/security/advisories/new",
            &format!("{REPOSITORY}/blob/main/nothing"),
            "https://docs.rs/lock-core/latest/lock_core/nothing.html",
        ] {
            assert!(follow(&page, bad).is_err(), "{bad}");
        }
    }
}

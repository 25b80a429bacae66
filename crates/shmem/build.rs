//! Writes the headers and the exported functions, all from the one table of the API.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("api.rs"), memonet_shmem_api::rust())?;
    std::fs::write(out.join("inlined.rs"), memonet_shmem_api::inlined())?;
    for (path, text) in memonet_shmem_api::headers() {
        let path = out.join("include").join(path);
        std::fs::create_dir_all(path.parent().expect("a file in a folder"))?;
        std::fs::write(path, text)?;
    }
    // What the shared library is to define, and the static one to define for others.
    let symbols = memonet_shmem_api::symbols();
    let mut symbols: String = symbols.iter().map(|name| format!("{name}\np{name}\n")).collect();
    symbols.extend(memonet_shmem_api::objects().into_iter().flat_map(|name| [name, "\n"]));
    std::fs::write(out.join("symbols"), symbols)?;
    println!("cargo::rustc-env=MEMONET_INCLUDE={}", out.join("include").display());
    Ok(())
}

//! Writes the headers and the Rust source into a folder: `generate FOLDER`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/shmem".to_owned());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder.join("mpp"))?;
    for (path, text) in memonet_shmem_api::headers() {
        std::fs::write(folder.join(path), text)?;
    }
    std::fs::write(folder.join("inlined.rs"), memonet_shmem_api::inlined())?;
    std::fs::write(folder.join("api.rs"), memonet_shmem_api::rust())
}

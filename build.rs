fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfabric.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={dir}/libfabric.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--undefined-version");
    println!("cargo:rerun-if-changed=libfabric.map");
}

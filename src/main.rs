fn main() -> std::process::ExitCode {
    assay::cli::main()
}

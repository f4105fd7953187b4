class Localspec < Formula
  include Language::Python::Virtualenv

  desc "Local runner for speculative decoding on llama.cpp"
  homepage "{homepage}"
  url "{url}"
  sha256 "{sha256}"
  version "{version}"
  license "MIT"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "python@3.12"

  def install
    ENV["CMAKE_ARGS"] = OS.mac? ? "-DGGML_METAL=on" : "-DGGML_NATIVE=on"
    virtualenv_create(libexec, "python3.12")
    system libexec/"bin/python", "-m", "ensurepip"
    system libexec/"bin/python", "-m", "pip", "install", "--no-cache-dir", "#{buildpath}[server]"
    bin.install_symlink libexec/"bin/localspec"
    generate_completions_from_executable(bin/"localspec", "completion", shells: [:bash, :zsh, :fish])
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/localspec --version")
    assert_match "qwen2.5-7b", shell_output("#{bin}/localspec catalog qwen2.5-7b")
  end
end

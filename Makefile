# The menu. Each target is one line; anything with an `if` lives in `cargo xtask` or scripts/.
.DEFAULT_GOAL := menu
.PHONY: menu setup build run test bench check vm lists fuzz fmt install deb testdeb
MAKEFLAGS += --no-print-directory

PREFIX ?= /usr/local
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release

# Where rustup puts cargo, for a shell that was opened before rustup ran.
export PATH := $(PATH):$(HOME)/.cargo/bin

menu: ## print this menu
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the Debian packages that are missing; say how to get Rust
	@sh scripts/setup.sh

build: ## build target/release/tollgate and tollgate-bench
	@cargo build --release --locked --package tollgate --package bench

run: ## audit this machine with examples/first.rules until Ctrl-C; without root, one command
	@sh scripts/run.sh

check: ## formatting, lints, tidy and every test that needs no root
	@cargo xtask check

test: setup ## check, then the end-to-end tests (root) and those on other kernels
	@cargo xtask test

bench: build ## what auditing costs, next to none and to the kernel's own (root)
	@$(RELEASE)/tollgate-bench --goals

vm: ## run the tests on the kernels of Debian 12, in emulated machines: KERNEL=6.1|6.12|all
	@cargo xtask vm --kernel $(or $(KERNEL),all)

lists: ## random rule lists against the kernel's own audit, on this kernel (root): LISTS=SEED:FIRST:COUNT
	@cargo xtask lists $(or $(LISTS),1:0:300)

fuzz: ## throw rule text of any bytes at what reads it: SECONDS=60 for each target
	@cargo xtask fuzz --seconds $(or $(SECONDS),60)

fmt: ## format the Rust and the C
	@cargo xtask fmt

install: ## put what `make build` built under DESTDIR/PREFIX (/usr/local) (root)
	@sh scripts/install.sh $(RELEASE) "$(DESTDIR)" "$(PREFIX)"

deb: build ## build the Debian package in target/debian
	@sh scripts/deb.sh $(RELEASE) $(or $(CARGO_TARGET_DIR),target)/debian

testdeb: deb ## lintian; install, boot and remove it in a Debian 12 of its own (root, network)
	@sh scripts/test-deb.sh $(or $(CARGO_TARGET_DIR),target)/debian/tollgate_*.deb

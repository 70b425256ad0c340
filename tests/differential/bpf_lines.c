/*
 * Prints where the machine code of loaded BPF programs is, and which lines of source it is from:
 *
 *   vm: program ADDRESS BYTES NAME   a program, or a function of it
 *   vm: line ADDRESS FILE NUMBER     the instructions from here to the next such address
 *
 * Addresses are hexadecimal. Needs root.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int info_of(int fd, void *info, uint32_t size)
{
	union bpf_attr attr = { 0 };

	attr.info.bpf_fd = fd;
	attr.info.info_len = size;
	attr.info.info = (uintptr_t)info;
	return (int)bpf(BPF_OBJ_GET_INFO_BY_FD, &attr);
}

static void *zeroed(size_t count, size_t size)
{
	void *memory = calloc(count + 1, size);

	if (!memory) {
		perror("bpf_lines");
		exit(1);
	}
	return memory;
}

/* The raw type information of a program: the names of its files are in it. */
static char *types_of(uint32_t id)
{
	union bpf_attr attr = { 0 };
	struct bpf_btf_info info = { 0 };
	char *types = NULL;
	int fd;

	attr.btf_id = id;
	fd = (int)bpf(BPF_BTF_GET_FD_BY_ID, &attr);
	if (fd < 0)
		return NULL;
	if (!info_of(fd, &info, sizeof(info))) {
		uint32_t size = info.btf_size;

		types = zeroed(size, 1);
		info = (struct bpf_btf_info){ .btf = (uintptr_t)types, .btf_size = size };
		if (info_of(fd, &info, sizeof(info))) {
			free(types);
			types = NULL;
		}
	}
	close(fd);
	return types;
}

static void show_program(int fd)
{
	struct bpf_prog_info counts = { 0 };
	struct bpf_prog_info info = { 0 };
	struct bpf_line_info *lines;
	const struct btf_header *header;
	uint64_t *addresses, *functions;
	uint32_t *sizes;
	char *types;

	if (info_of(fd, &counts, sizeof(counts)))
		return;
	lines = zeroed(counts.nr_line_info, sizeof(*lines));
	addresses = zeroed(counts.nr_jited_line_info, sizeof(*addresses));
	functions = zeroed(counts.nr_jited_ksyms, sizeof(*functions));
	sizes = zeroed(counts.nr_jited_func_lens, sizeof(*sizes));
	info.nr_line_info = counts.nr_line_info;
	info.line_info = (uintptr_t)lines;
	info.line_info_rec_size = sizeof(*lines);
	info.nr_jited_line_info = counts.nr_jited_line_info;
	info.jited_line_info = (uintptr_t)addresses;
	info.jited_line_info_rec_size = sizeof(*addresses);
	info.nr_jited_ksyms = counts.nr_jited_ksyms;
	info.jited_ksyms = (uintptr_t)functions;
	info.nr_jited_func_lens = counts.nr_jited_func_lens;
	info.jited_func_lens = (uintptr_t)sizes;
	if (info_of(fd, &info, sizeof(info)))
		return;
	for (uint32_t i = 0; i < info.nr_jited_ksyms && i < info.nr_jited_func_lens; i++)
		printf("vm: program %llx %u %s\n", (unsigned long long)functions[i], sizes[i],
		       info.name);
	types = types_of(info.btf_id);
	header = (const struct btf_header *)types;
	for (uint32_t i = 0; types && i < info.nr_jited_line_info && i < info.nr_line_info; i++)
		printf("vm: line %llx %s %u\n", (unsigned long long)addresses[i],
		       types + header->hdr_len + header->str_off + lines[i].file_name_off,
		       lines[i].line_col >> 10);
	free(types);
	free(lines);
	free(addresses);
	free(functions);
	free(sizes);
}

int main(void)
{
	union bpf_attr attr = { 0 };

	while (!bpf(BPF_PROG_GET_NEXT_ID, &attr)) {
		uint32_t id = attr.next_id;
		int fd;

		attr = (union bpf_attr){ .prog_id = id };
		fd = (int)bpf(BPF_PROG_GET_FD_BY_ID, &attr);
		if (fd >= 0) {
			show_program(fd);
			close(fd);
		}
		attr = (union bpf_attr){ .start_id = id };
	}
	return 0;
}

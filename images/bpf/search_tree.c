// SPDX-License-Identifier: GPL-2.0-only
// Two functions of elfutils 0.192 (lib/eu-search.c) that its libelf.a calls and does not have, as Debian 13 packs it:
// they are in libeu.a, which no package brings. Weak, so that a library's own are taken where it has them.
//
// A tree holds the raw chunks of a file (elf_getdata_rawchunk), which libbpf never asks for: it stays empty. Its root is
// the first member of elfutils' search_tree; the lock behind it is taken by eu_tsearch() alone.
#include <stddef.h>

struct search_tree {
	void *root;
};

void eu_search_tree_init(struct search_tree *tree);
void eu_search_tree_fini(struct search_tree *tree, void (*free_node)(void *));

__attribute__((weak)) void eu_search_tree_init(struct search_tree *tree)
{
	tree->root = NULL;
}

__attribute__((weak)) void eu_search_tree_fini(struct search_tree *tree, void (*free_node)(void *))
{
	(void)tree;
	(void)free_node;
}

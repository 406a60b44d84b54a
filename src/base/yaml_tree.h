/* YAML text as a small tree in an arena, every node with its place, for base/config.c alone. */
#ifndef WEFT_BASE_YAML_TREE_H
#define WEFT_BASE_YAML_TREE_H

#include "base/memory.h"

typedef enum weft_yaml_kind {
    WEFT_YAML_NULL, /* nothing, "~" or "null" */
    WEFT_YAML_SCALAR,
    WEFT_YAML_LIST,
    WEFT_YAML_MAP,
} weft_yaml_kind;

typedef struct weft_yaml_node weft_yaml_node;
struct weft_yaml_node {
    weft_yaml_kind kind;
    const char *where;      /* "run.yaml:12", or the override that set it */
    const char *text;       /* SCALAR */
    bool quoted;            /* SCALAR: a text, whatever it looks like */
    int64_t count;          /* LIST and MAP: children */
    weft_yaml_node **child; /* [count] */
    const char **key;       /* MAP: [count] */
    const char **key_where; /* MAP: [count] */
};

/* Parses one document. Messages print `name` as the file; with `fixed_place` every node's
 * `where` is `name` alone (an override has no lines). Aliases are copied, within limits on depth
 * and node count, so that neither a cycle nor an alias bomb takes memory. An empty text is NULL. */
weft_status weft_yaml_parse(weft_arena *arena, const char *text, int64_t bytes, const char *name,
                            bool fixed_location, weft_yaml_node **root);

/* The child of a map, or NULL. */
weft_yaml_node *weft_yaml_find(const weft_yaml_node *map, const char *key);
/* Appends (key NULL: to a list; else to a map that does not have the key). */
weft_status weft_yaml_append(weft_arena *arena, weft_yaml_node *parent, const char *key,
                             const char *key_where, weft_yaml_node *child);
weft_status weft_yaml_new(weft_arena *arena, weft_yaml_kind kind, const char *where,
                          weft_yaml_node **node);

#endif

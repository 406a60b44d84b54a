#include "inspect/inspect_names.h"

#include "base/compare.h"
#include "base/fs.h"
#include "format/tensors/tensors.h"
#include "graph/builder_helpers.h"
#include "inspect/inspect_file.h"
#include "model/key_mapping.h"

#include <stdio.h>
#include <stdlib.h>

/* Returns the line of a tensor as stored in a file, which stores the items of a stack
 * separately. */
static const char *tensor_line(weft_arena *arena, const weft_value_info *v, int64_t item,
                               const weft_tensors *stored)
{
    const bool stack = weft_name_is_stack(v->name);
    char item_name[600];
    const char *name = v->name, *made = NULL;
    if (stack) {
        weft_stack_item(v->name, item, item_name, sizeof item_name);
        name = item_name;
    }
    const weft_stored_tensor *t = stored ? weft_tensors_find(stored, name) : NULL;
    weft_buf text = {0};
    weft_inspect_put_tensor(name, t ? weft_stored_type(t) : weft_dtype_name(v->dtype),
                            v->shape.rank - stack, v->shape.dim + stack, &text);
    if (text.data)
        made = weft_arena_strdup(arena, text.data);
    weft_buf_free(&text);
    return made;
}

/* Prints the tensors sorted by name. Types of a folder with weights are the types in its files. */
static weft_status print_tensors(weft_graph *g, const weft_tensors *stored)
{
    int64_t count = 0, capacity = 0;
    const char **line = NULL;
    weft_arena *arena = weft_arena_create();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(arena, "names"));
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_PARAM)
            continue;
        const weft_value_info *v = weft_value_get(g, node->out[0]);
        const int64_t items = weft_name_is_stack(v->name) ? v->shape.dim[0] : 1;
        for (int64_t i = 0; i < items; i++) {
            WEFT_GO(weft_grow((void **)&line, count, &capacity, sizeof *line));
            line[count] = tensor_line(arena, v, i, stored);
            WEFT_GO(WEFT_ALLOCATED(line[count++], "names"));
        }
    }
    if (count)
        qsort(line, (size_t)count, sizeof *line, weft_compare_text);
    for (int64_t i = 0; i < count; i++)
        puts(line[i]);
out:
    weft_arena_free(arena);
    weft_free(line);
    return status;
}

weft_status weft_inspect_names(const weft_model *model, const char *path)
{
    const weft_model_size size = weft_model_smallest(model);
    weft_tensors *stored = NULL;
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "a graph"));
    weft_model_build(g, model, &size, false);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_graph_check(g));
    if (weft_path_is_dir(path) && weft_tensors_open(path, &stored) != WEFT_OK)
        stored = NULL; /* a folder without weights still has names */
    WEFT_GO(print_tensors(g, stored));
out:
    weft_tensors_close(stored);
    weft_graph_free(g);
    return status;
}

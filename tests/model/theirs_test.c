/* The names of authors' files, made from the model's: of every published size each parameter has
 * one, which is read as it, and the tensor that a dialect is known by is among them. */
#include "graph/builder_helpers.h"
#include "model/key_mapping.h"
#include "model/model.h"
#include "model/registry.h"

#include <criterion/criterion.h>
#include <string.h>

static bool holds(const weft_foreign_tensor *t, const char *name)
{
    for (int i = 0; i < t->parts; i++)
        if (!strcmp(t->part[i], name))
            return true;
    return false;
}

static void check_size(const weft_family *f, const char *size)
{
    weft_model model;
    bool known = false;
    cr_assert_eq(weft_model_open(size, &model), WEFT_OK, "%s", weft_error_message());
    const weft_model_size smallest = weft_model_smallest(&model);
    weft_graph *g = weft_graph_create();
    weft_model_build(g, &model, &smallest, false);
    const weft_key_mapping *d = weft_key_mapping_named(f, g, "", "original");
    cr_assert(d, "%s", size);
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        weft_foreign_tensor t;
        char name[600];
        if (node->op != WEFT_OP_PARAM)
            continue;
        weft_stack_item(weft_value_get(g, node->out[0])->name, 0, name, sizeof name);
        cr_assert(weft_key_mapping_foreign(d, g, "", name, &t), "%s: %s", size, name);
        cr_expect(holds(&t, name), "%s: %s is %s", size, name, t.name);
        known = known || !strcmp(t.name, d->marker);
    }
    /* without a frame rate the names are Wan's, so a file of weights is read as Wan's */
    cr_expect(known || !strcmp(size, "skyreels-v2-14b"), "%s: no %s", size, d->marker);
    weft_graph_free(g);
}

Test(theirs, every_parameter_of_every_published_size_has_one_name)
{
    int sizes = 0;
    for (int i = 0; weft_families[i]; i++) {
        const weft_family *f = weft_families[i];
        bool has = false;
        for (int d = 0; d < f->mappings; d++)
            has = has ||
                  (!strcmp(f->mapping[d].name, "original") && f->role != WEFT_ROLE_TEXT_ENCODER);
        for (const weft_named_config *size = f->sizes; has && size && size->name; size++, sizes++)
            check_size(f, size->name);
    }
    cr_expect(sizes >= 8, "%d sizes", sizes);
}

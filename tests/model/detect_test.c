/* The names that a model's tensors have in its own files are of no other family. */
#include "graph/graph.h"
#include "model/key_mapping.h"
#include "model/model.h"

#include "../model_of.h"
#include "model/registry.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static bool has_param(void *graph, const char *name)
{
    return weft_value_ok(weft_graph_find(graph, name));
}

/* Families whose models have the names of another one, and the family that they are taken for. */
static const char *const namesakes[][2] = {
    {"OpenSoraT2V_v1_3", "AllegroTransformer3DModel"},
    {"SkyReelsV2Transformer3DModel", "WanTransformer3DModel"}, /* without a frame rate */
    {"ChronoEditTransformer3DModel", "WanTransformer3DModel"},
    {"CausalWanTransformer3DModel", "WanTransformer3DModel"},
    {"AutoencoderKLQwenImage", "AutoencoderKLWan"},
    {"AutoencoderKLFlux2", "AutoencoderKL"}, /* without its statistics */
    {"MistralModel", "LlamaModel"},
};

static bool is_namesake(const weft_family *of, const weft_family *found)
{
    for (size_t i = 0; i < sizeof namesakes / sizeof *namesakes; i++)
        if (!strcmp(of->class_name, namesakes[i][0]) && !strcmp(found->class_name, namesakes[i][1]))
            return true;
    return false;
}

static void found_as_itself(const weft_model *model)
{
    const weft_family *family = model->family;
    const weft_model_size size = weft_model_smallest(model);
    weft_graph *g = weft_graph_create();
    weft_model_build(g, model, &size, false);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    const weft_key_mapping *dialect;
    const char *prefix;
    const weft_family *found = weft_key_mapping_detect(has_param, g, &dialect, &prefix);
    if (found)
        cr_expect(found == family || is_namesake(family, found), "%s is taken for %s (%s names)",
                  family->class_name, found->class_name, dialect->name);
    else
        cr_expect_fail("%s is not found", family->class_name);
    weft_graph_free(g);
}

/* Defaults of configs that contain other configs cannot be combined: the image token of LLaVA is the
 * first after Llama's vocabulary. */
static bool has_parts(const weft_family *family)
{
    for (int f = 0; f < family->fields; f++)
        if (family->field[f].type == WEFT_FIELD_PART)
            return true;
    return false;
}

Test(detect, every_family)
{
    for (int i = 0; weft_families[i]; i++) {
        char config[200];
        snprintf(config, sizeof config, "{\"_class_name\":\"%s\"}", weft_families[i]->class_name);
        if (!has_parts(weft_families[i])) {
            const weft_model model = model_of(config);
            found_as_itself(&model);
        }
        const weft_named_config *size = weft_families[i]->sizes;
        for (; size && size->name; size++) {
            weft_model published;
            cr_assert_eq(weft_model_open(size->name, &published), WEFT_OK, "%s",
                         weft_error_message());
            found_as_itself(&published);
        }
    }
}

/* The feed-forward of the first block is dense or has experts. */
Test(detect, mixture_of_experts)
{
    for (int dense = 0; dense < 3; dense++) {
        char config[200];
        snprintf(config, sizeof config,
                 "{\"_class_name\":\"WeftMoeTransformer3DModel\",\"num_layers\":2,"
                 "\"first_k_dense_replace\":%d}",
                 dense);
        const weft_model model = model_of(config);
        found_as_itself(&model);
    }
}

/* Names of a file, one per line. */
static bool has_line(void *names, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(names, name); at; at = strstr(at + 1, name))
        if ((at == (const char *)names || at[-1] == '\n') && at[length] == '\n')
            return true;
    return false;
}

/* LTX-Video 0.9.5 has all names of LTX-2 in the authors' files, and a modulated decoder. */
Test(detect, authors_names_of_ltx)
{
    static const struct {
        char names[160];
        const char *class_name;
    } file[] = {
        {"vae.encoder.down_blocks.1.conv.conv.weight\nvae.encoder.down_blocks.7.conv.conv.weight\n",
         "AutoencoderKLLTX2Video"},
        {"vae.encoder.down_blocks.1.conv.conv.weight\nvae.encoder.down_blocks.7.conv.conv.weight\n"
         "vae.decoder.last_scale_shift_table\n",
         "AutoencoderKLLTXVideo"},
    };
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        const weft_key_mapping *mapping;
        const char *prefix;
        const weft_family *found =
            weft_key_mapping_detect(has_line, (void *)file[i].names, &mapping, &prefix);
        cr_assert_not_null(found);
        cr_expect_str_eq(found->class_name, file[i].class_name);
        cr_expect_str_eq(mapping->name, "original");
        cr_expect_str_eq(prefix, "vae.");
    }
}

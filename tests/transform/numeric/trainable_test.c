/* Trainable parameters: frozen parameters, and LoRA matrices of linear layers, in a small graph and
 * in those of every family. */
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "model/model.h"
#include "model/registry.h"
#include "train/graph/optimizer.h"
#include "transform/numeric/trainable.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define LIST(...)                                                                                  \
    {                                                                                              \
        sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[])                   \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const weft_init zero = {0};

static weft_value linear(weft_graph *g, weft_value x, weft_value w)
{
    return weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, w}, 2, &(weft_attr_linear){0});
}

/* Two layers, the second of which reads its weight twice; a table that is added, and a text
 * encoder. */
static weft_graph *net(void)
{
    weft_graph *g = weft_graph_create();
    weft_value x = weft_input(g, "batch.x", WEFT_F32, WEFT_SHAPE(4, 6));
    weft_graph_push(g, "text");
    x = linear(g, x, weft_param(g, "to_q.weight", WEFT_F32, WEFT_SHAPE(6, 6), zero));
    weft_graph_pop(g);
    weft_graph_push(g, "model");
    const weft_value q = weft_param(g, "blocks.0.to_q.weight", WEFT_F32, WEFT_SHAPE(8, 6), zero);
    const weft_value out = weft_param(g, "out.0.weight", WEFT_F32, WEFT_SHAPE(8, 8), zero);
    const weft_value table = weft_param(g, "table", WEFT_F32, WEFT_SHAPE(8), zero);
    weft_graph_pop(g);
    x = linear(g, linear(g, linear(g, x, q), out), out);
    weft_output(g, "objective", weft_mean_all(g, weft_add(g, x, table)));
    return g;
}

static weft_graph *tuned(const weft_trainable *tuning)
{
    weft_graph *g = net(), *out = NULL;
    cr_assert_eq(weft_pass_trainable(g, tuning, &out), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_graph_verify(out), WEFT_OK);
    weft_graph_free(g);
    return out;
}

static void expect_trained(weft_graph *g, const char *names)
{
    int count;
    char text[400] = "";
    const weft_value *param = weft_graph_params(g, &count);
    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
                 weft_value_get(g, param[i])->name);
    cr_expect_str_eq(text, names);
}

Test(tune, matrices_stand_beside_the_targets_of_the_scope_once_for_a_weight)
{
    weft_graph *g =
        tuned(&(weft_trainable){.scope = "model", .rank = 2, .alpha = 4, .targets = LIST("out.0")});
    expect_trained(g, "text.to_q.weight model.out.0.lora_A.weight model.out.0.lora_B.weight");
    const weft_value_info *a = weft_value_get(g, weft_graph_find(g, "model.out.0.lora_A.weight")),
                          *b = weft_value_get(g, weft_graph_find(g, "model.out.0.lora_B.weight"));
    cr_expect(weft_shape_equal(&a->shape, &(weft_shape){.rank = 2, .dim = {2, 8}}));
    cr_expect(weft_shape_equal(&b->shape, &(weft_shape){.rank = 2, .dim = {8, 2}}));
    int linears = 0, scales = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        linears += node->op == WEFT_OP_LINEAR;
        scales += node->op == WEFT_OP_AFFINE && ((const weft_attr_affine *)node->attr)->scale == 2;
    }
    cr_expect_eq(linears, 4 + 2 * 2);
    cr_expect_eq(scales, 2);
    weft_graph_free(g);
}

Test(tune, what_is_frozen_has_no_states)
{
    weft_graph *g = tuned(
        &(weft_trainable){.scope = "model", .rank = 3, .alpha = 3, .targets = LIST("all-linear")});
    weft_optimizer_build(g, weft_graph_find(g, "objective"),
                         &(weft_optimizer_config){.ema_decay = 0.9});
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    cr_expect(weft_value_ok(weft_graph_find(g, "adamw.m.model.blocks.0.to_q.lora_A.weight")));
    cr_expect(weft_value_ok(weft_graph_find(g, "ema.model.out.0.lora_B.weight")));
    cr_expect(weft_value_ok(weft_graph_find(g, "adamw.v.text.to_q.weight")));
    cr_expect_not(weft_value_ok(weft_graph_find(g, "adamw.m.model.out.0.weight")));
    cr_expect_not(weft_value_ok(weft_graph_find(g, "ema.model.table")));
    weft_graph_free(g);
}

Test(tune, patterns_are_names_their_ends_what_they_are_in_and_any_text)
{
    static const struct {
        const char *train, *freeze, *left;
    } cases[] = {
        {NULL, "blocks.0", "model.out.0.weight model.table"},
        {NULL, "to_q", "model.out.0.weight model.table"},
        {NULL, "*.weight", "model.table"},
        {"table", NULL, "model.table"},
        {"weight", "out", "model.blocks.0.to_q.weight"},
        {"*o*", "t*", "model.blocks.0.to_q.weight model.out.0.weight"},
    };
    for (int i = 0; i < WEFT_COUNT(cases); i++) {
        const char *train = cases[i].train, *freeze = cases[i].freeze;
        char left[200];
        snprintf(left, sizeof left, "text.to_q.weight %s", cases[i].left);
        weft_graph *g = tuned(&(weft_trainable){.scope = "model",
                                                .train = {train != NULL, &train},
                                                .freeze = {freeze != NULL, &freeze}});
        expect_trained(g, left);
        weft_graph_free(g);
    }
}

Test(tune, what_fits_nothing_is_refused)
{
    static const struct {
        const char *target, *freeze, *key, *text;
        bool is_auto;
    } cases[] = {
        {"table", NULL, "lora.targets", "no linear layer"},
        {"q", NULL, "lora.targets", "end with to_q, out.0"},
        {"q", NULL, "lora.targets", "\"auto\" matches", .is_auto = true},
        {NULL, "blocks", NULL, NULL},
        {NULL, "block", "freeze", "\"block\""},
        {NULL, "*", "freeze", "are frozen"},
    };
    for (int i = 0; i < WEFT_COUNT(cases); i++) {
        weft_graph *g = net(), *out = NULL;
        const char *target = cases[i].target, *freeze = cases[i].freeze;
        const weft_trainable t = {.scope = "model",
                                  .rank = target != NULL,
                                  .alpha = 1,
                                  .targets = {target != NULL, &target},
                                  .auto_targets = cases[i].is_auto,
                                  .freeze = {freeze != NULL, &freeze}};
        cr_expect_eq(weft_pass_trainable(g, &t, &out), cases[i].key ? WEFT_E_CONFIG : WEFT_OK);
        if (cases[i].key)
            cr_expect(weft_error_class() == WEFT_MSG_CONFIG_VALUE &&
                          !strcmp(weft_error_fields()->key, cases[i].key) &&
                          strstr(weft_error_text(), cases[i].text),
                      "%s", weft_error_message());
        weft_graph_free(out);
        weft_graph_free(g);
    }
}

Test(tune, names_of_a_family_may_match_nothing)
{
    weft_graph *g = tuned(&(weft_trainable){.scope = "model",
                                            .rank = 2,
                                            .alpha = 2,
                                            .targets = LIST("q", "out.0"),
                                            .auto_targets = true});
    expect_trained(g, "text.to_q.weight model.out.0.lora_A.weight model.out.0.lora_B.weight");
    weft_graph_free(g);
}

/* Every linear layer of every denoiser: the loss reaches each matrix, and nothing else has a
 * gradient. */
Test(tune, any_family_is_adapted)
{
    for (int f = 0; weft_families[f]; f++) {
        weft_model model;
        if (weft_families[f]->role != WEFT_ROLE_DENOISER || !weft_families[f]->sizes)
            continue;
        cr_assert_eq(weft_model_open(weft_families[f]->sizes[0].name, &model), WEFT_OK);
        const weft_model_size size = weft_model_smallest(&model);
        weft_graph *g = weft_graph_create(), *out = NULL;
        weft_model_build(g, &model, &size, true);
        const weft_trainable t = {
            .scope = weft_families[f]->scope, .rank = 4, .alpha = 4, .targets = LIST("all-linear")};
        cr_assert_eq(weft_pass_trainable(g, &t, &out), WEFT_OK, "%s", weft_error_message());
        weft_graph_free(g);
        weft_optimizer_build(
            out,
            weft_mean_all(out, weft_unary(out, WEFT_OP_SQUARE, weft_graph_find(out, "prediction"))),
            &(weft_optimizer_config){0});
        cr_assert_eq(weft_graph_check(out), WEFT_OK, "%s", weft_error_message());
        int count, without = 0;
        const weft_value *param = weft_graph_params(out, &count);
        for (int i = 0; i < count; i++) {
            char state[600];
            const char *name = weft_value_get(out, param[i])->name;
            size_t module;
            cr_expect(weft_param_is_lora(name, &module), "%s", name);
            snprintf(state, sizeof state, "adamw.m.%s", name);
            without += !weft_value_ok(weft_graph_find(out, state));
        }
        cr_expect(count > 0 && without <= count / 10, "%s: %d of %d matrices without a gradient",
                  weft_families[f]->class_name, without, count);
        weft_graph_free(out);
    }
}

static bool is_attention(weft_op op)
{
    return op == WEFT_OP_ATTENTION || op == WEFT_OP_BLOCK_ATTENTION;
}

/* Whether a linear layer that makes `v`, without another one in between, has matrices. */
static bool is_adapted(const weft_graph *g, weft_value v, bool *seen)
{
    const weft_node *node = weft_graph_node(g, weft_value_get(g, v)->node);
    if (seen[v.id])
        return false;
    seen[v.id] = true;
    if (strstr(node->scope, ".lora"))
        return true;
    for (int i = 0; i < node->in_count && node->op != WEFT_OP_LINEAR; i++)
        if (weft_value_ok(node->in[i]) && is_adapted(g, node->in[i], seen))
            return true;
    return false;
}

/* Number of attentions none of whose queries, keys and values has matrices. */
static int count_unadapted(const weft_graph *g)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        bool adapted = !is_attention(node->op);
        bool *seen = weft_calloc(weft_graph_value_count(g), sizeof *seen);
        cr_assert(seen);
        for (int i = 0; i < 3 && !adapted; i++)
            adapted = is_adapted(g, node->in[i], seen);
        count += !adapted;
        weft_free(seen);
    }
    return count;
}

/* Attentions whose layers have other names than the default's: the pooling of Hunyuan-DiT's text,
 * and the image context of Cosmos Transfer 2.5 in 28 blocks and 4 control blocks. */
static int expected_unadapted(const char *published)
{
    return strstr(published, "hunyuan-dit") ? 1 : strstr(published, "cosmos-transfer") ? 32 : 0;
}

/* The layers that a family has by default are in all its published models, each name matches some,
 * and no other attention is without matrices. */
Test(tune, any_family_has_layers_by_default)
{
    for (int f = 0; weft_families[f]; f++) {
        const weft_family *family = weft_families[f];
        if (family->role != WEFT_ROLE_DENOISER)
            continue;
        cr_assert(family->sizes && family->sizes[0].name, "%s", family->class_name);
        for (const weft_named_config *published = family->sizes; published->name; published++) {
            weft_model model;
            cr_assert_eq(weft_model_open(published->name, &model), WEFT_OK);
            const weft_model_size size = weft_model_smallest(&model);
            weft_graph *g = weft_graph_create(), *out = NULL;
            weft_model_build(g, &model, &size, true);
            const weft_trainable t = {.scope = family->scope,
                                      .rank = 4,
                                      .alpha = 4,
                                      .targets = weft_family_lora_targets(family)};
            cr_assert_eq(weft_pass_trainable(g, &t, &out), WEFT_OK, "%s: %s", published->name,
                         weft_error_message());
            cr_expect_eq(count_unadapted(out), expected_unadapted(published->name), "%s",
                         published->name);
            weft_graph_free(g);
            weft_graph_free(out);
        }
    }
}

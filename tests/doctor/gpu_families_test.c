/* Steps of every family against stored numbers: on backend cpu for all, and on the emulated driver
 * for some, where a planted fault is found. */
#include "base/config.h"
#include "doctor/gpu_families.h"

#include "kernel/cpu/table.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/ref/table.h"
#include "model/registry.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Backend ref computes in f64: inputs differ by the last bits of another C library,
 * which some families let grow. WEFT_FAMILY_NUMBERS names the file of numbers, which gets new
 * lines instead. */
Test(gpu_families, stored_numbers_are_of_ref)
{
    const char *path = getenv("WEFT_FAMILY_NUMBERS");
    FILE *file = path ? fopen(path, "a") : NULL;
    for (int i = 0; weft_gpu_families[i].config; i++) {
        char name[64];
        int worst;
        double number[WEFT_FAMILY_NUMBERS];
        const weft_status_code status =
            weft_gpu_family_step(i, &weft_backend_ref, WEFT_PRODUCTS_F32, number, name);
        cr_expect_eq(status, WEFT_OK, "%s", weft_error_message());
        if (file && status == WEFT_OK)
            fprintf(file, "FAMILY_NUMBERS(\"%s\", %.8g, %.8g, %.8g)\n", name, number[0], number[1],
                    number[2]);
        if (file || status != WEFT_OK)
            continue;
        const double *right = weft_gpu_family_stored(name);
        cr_assert_not_null(
            right, "%s has no numbers: gpu_family_numbers.def says how to write them", name);
        cr_expect_lt(weft_gpu_family_error(number, right, &worst), 1e-4, "%s", name);
    }
    if (file)
        fclose(file);
}

static void check_cpu(weft_products products, double tolerance)
{
    for (int i = 0; weft_gpu_families[i].config; i++) {
        char name[64];
        int worst;
        double number[WEFT_FAMILY_NUMBERS];
        cr_assert_eq(weft_gpu_family_step(i, &weft_backend_cpu, products, number, name), WEFT_OK,
                     "%s", weft_error_message());
        cr_expect_lt(weft_gpu_family_error(number, weft_gpu_family_stored(name), &worst), tolerance,
                     "%s", name);
    }
}

Test(gpu_families, cpu_has_the_stored_numbers)
{
    check_cpu(WEFT_PRODUCTS_F32, weft_gpu_family_tolerance(WEFT_PRODUCTS_F32));
}

/* Two autoencoders of LTX have errors of 0.2 and 0.3 in bf16, the others less than 0.1: the limit
 * of the comparison on a GPU is twice the error of cpu. */
Test(gpu_families, cpu_is_near_in_bf16)
{
    check_cpu(WEFT_PRODUCTS_BF16, 0.5);
}

static int index_of(const char *name)
{
    for (int i = 0; weft_gpu_families[i].config; i++)
        if (strstr(weft_gpu_families[i].config, name))
            return i;
    cr_assert_fail("%s", name);
    return 0;
}

/* A norm ends LTX-2's connectors, and a limit of 1 the outputs of its wide vocoder: the mean square
 * of such outputs hardly depends on the weights. */
static bool has_no_loss(const char *class_name)
{
    return !strcmp(class_name, "LTX2TextConnectors") || !strcmp(class_name, "LTX2VocoderWithBWE");
}

/* A new family needs an entry. */
Test(gpu_families, every_family_is_listed)
{
    char start[96];
    for (int i = 0; weft_families[i]; i++) {
        if (has_no_loss(weft_families[i]->class_name))
            continue;
        snprintf(start, sizeof start, "{\"_class_name\":\"%s\"", weft_families[i]->class_name);
        (void)index_of(start);
    }
}

/* ---- the emulated driver --------------------------------------------------------------------- */

static const char *const few[] = {"WanTransformer3DModel", "HunyuanVideoTransformer3DModel",
                                  "WeftMoeTransformer3DModel", "UNet2DConditionModel"};

/* The lines of some families, and how many failed. */
static json_t *check_some(const char *const *some, int count, const char *fault,
                          weft_products products, int *failed)
{
    json_t *list = json_array();
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    setenv("WEFT_EMU_FAULT", fault, 1);
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    *failed = 0;
    for (int i = 0; i < count; i++)
        cr_expect_eq(weft_gpu_family_check(index_of(some[i]), products, list, failed), WEFT_OK,
                     "%s", weft_error_message());
    cr_assert_eq(json_array_size(list), count);
    return list;
}

static json_t *check_few(const char *fault, weft_products products, int *failed)
{
    return check_some(few, WEFT_COUNT(few), fault, products, failed);
}

/* One encoder of each kind of attention and norms. */
static const char *const encoders[] = {
    "\"UMT5EncoderModel", "CLIPTextModelWithProjection", "SiglipVisionModel",
    "Gemma3TextModel",    "Qwen2_5_VLTextModel",         "Qwen3Model",
    "BertModel"};

Test(gpu_families, emulated_gpu_passes_encoders)
{
    int failed;
    json_t *list = check_some(encoders, WEFT_COUNT(encoders), "", WEFT_PRODUCTS_F32, &failed);
    char *text = json_dumps(list, 0);
    cr_expect_eq(failed, 0, "%s", text);
    free(text);
    json_decref(list);
}

static void expect_all_pass(weft_products products)
{
    int failed;
    json_t *list = check_few("", products, &failed);
    char *text = json_dumps(list, 0);
    cr_expect_eq(failed, 0, "%s", text);
    free(text);
    json_decref(list);
}

Test(gpu_families, emulated_gpu_passes)
{
    expect_all_pass(WEFT_PRODUCTS_F32);
}

Test(gpu_families, emulated_gpu_passes_in_bf16)
{
    expect_all_pass(WEFT_PRODUCTS_BF16);
}

Test(gpu_families, emulated_gpu_passes_in_tf32)
{
    expect_all_pass(WEFT_PRODUCTS_TF32);
}

/* Attention over chosen blocks: by their share of attention, and by their number. */
Test(gpu_families, emulated_gpu_passes_attention_over_blocks)
{
    static const char *const blocks[] = {"\"nabla\"", "\"enable_bsa\""};
    for (int p = 0; p < WEFT_PRODUCTS_COUNT; p++) {
        int failed;
        json_t *list = check_some(blocks, WEFT_COUNT(blocks), "", (weft_products)p, &failed);
        char *text = json_dumps(list, 0);
        cr_expect_eq(failed, 0, "%s", text);
        cr_expect(strstr(text, "Kandinsky5Transformer3DModel nabla"), "%s", text);
        cr_expect(strstr(text, "LongCatVideoTransformer3DModel bsa"), "%s", text);
        free(text);
        json_decref(list);
    }
}

/* Its step is well conditioned: the tolerance need not follow the error of bf16 on cpu. */
Test(gpu_families, emulated_gpu_passes_cosmos_vae_in_bf16)
{
    static const char *const vae[] = {"AutoencoderKLCosmos"};
    int failed;
    json_t *list = check_some(vae, 1, "", WEFT_PRODUCTS_BF16, &failed);
    char *text = json_dumps(list, 0);
    cr_expect_eq(failed, 0, "%s", text);
    cr_expect_eq(json_real_value(json_object_get(json_array_get(list, 0), "tolerance")),
                 weft_gpu_family_tolerance(WEFT_PRODUCTS_BF16), "%s", text);
    free(text);
    json_decref(list);
}

/* A wrong lse of attention changes gradients: the four models have attention. */
Test(gpu_families, wrong_lse_is_found)
{
    int failed;
    json_t *list = check_few("lse", WEFT_PRODUCTS_F32, &failed);
    cr_expect_eq(failed, WEFT_COUNT(few));
    const json_t *first = json_array_get(list, 0);
    cr_expect_str_eq(json_string_value(json_object_get(first, "family")), few[0]);
    cr_expect(json_is_true(json_object_get(first, "failed")));
    json_decref(list);
}

/* A GPU that is lost ends the comparison with the name of the family. */
Test(gpu_families, a_lost_gpu_is_named_with_its_family)
{
    int failed = 0;
    json_t *list = json_array();
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    setenv("WEFT_EMU_FAULT", "lost@20", 1);
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    cr_expect_neq(weft_gpu_family_check(0, WEFT_PRODUCTS_F32, list, &failed), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_GPU_LOST, "%s", weft_error_message());
    cr_expect(strstr(weft_error_message(), "WanTransformer3DModel"), "%s", weft_error_message());
    json_decref(list);
}

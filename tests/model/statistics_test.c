/* Means and deviations of latents: per channel, per frame, or in the file next to the weights. */
#include "base/fs.h"
#include "format/tensors/safetensors.h"
#include "model/key_mapping.h"
#include "model/model.h"

#include "../model_of.h"
#include "format/tensors/safetensors_write.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* Cosmos' config has a channel's frames together, the grid a frame's channels. */
Test(statistics, of_each_frame)
{
    weft_model model =
        model_of("{\"_class_name\":\"AutoencoderKLCosmos\",\"latent_channels\":3,"
                 "\"latents_mean\":[1,2,3,4,5,6],\"latents_std\":[10,20,30,40,50,60]}");
    weft_grid grid = weft_model_grid(&model);
    cr_assert_eq(grid.own_frames, 2);
    static const double mean[6] = {1, 3, 5, 2, 4, 6};
    for (int f = 0; f < 2; f++)
        for (int c = 0; c < 3; c++) {
            const int64_t at = weft_grid_statistics_at(&grid, f) + c;
            cr_expect_eq(grid.mean[at], mean[3 * f + c]);
            cr_expect_eq(grid.deviation[at], 10 * mean[3 * f + c]);
        }
    cr_expect_eq(weft_grid_check_statistics(&grid, 2, WEFT_NOWHERE), WEFT_OK);
    cr_expect_eq(weft_grid_check_statistics(&grid, 3, WEFT_NOWHERE), WEFT_E_UNSUPPORTED);
    /* back into the config, and from there again */
    grid.mean[1] = 7;
    weft_model_set_statistics(&model, &grid);
    cr_expect_eq(weft_model_grid(&model).mean[1], 7);
    json_t *json = weft_model_write(&model);
    cr_expect_eq(json_array_size(json_object_get(json, "latents_mean")), 6);
    cr_expect_eq(json_number_value(json_array_get(json_object_get(json, "latents_mean"), 2)), 7);
    json_decref(json);
}

Test(statistics, one_a_channel)
{
    const weft_model model = model_of("{\"_class_name\":\"AutoencoderKLCosmos\"}");
    const weft_grid grid = weft_model_grid(&model);
    cr_expect_eq(grid.own_frames, 0);
    cr_expect_eq(grid.mean[15], 0);
    cr_expect_eq(grid.deviation[15], 1);
    cr_expect_eq(weft_grid_check_statistics(&grid, 1000, WEFT_NOWHERE), WEFT_OK);
    cr_expect_eq(weft_grid_statistics_at(&grid, 5), 0);
}

/* Tensors of `dim` values each: a marker, means, and `values`. */
static void write_tensors(const char *folder, const char *const name[3], int64_t dim,
                          const float *mean, const float *deviation)
{
    weft_tensors_writer *w;
    cr_assert_eq(weft_tensors_writer_create(folder, "diffusion_pytorch_model", 0, &w), WEFT_OK);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(weft_tensors_writer_declare(w, name[i], WEFT_F32, 1, &dim), WEFT_OK);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(weft_tensors_writer_data(w, name[i], WEFT_F32, i == 1 ? mean : deviation),
                     WEFT_OK);
    cr_assert_eq(weft_tensors_writer_finish(w), WEFT_OK, "%s", weft_error_message());
    weft_tensors_writer_free(w);
}

static void write_file(const char *folder, const float *deviation)
{
    static const float mean[2] = {0.5f, -1};
    static const char *const name[3] = {"decoder.up_blocks.9.res_blocks.0.conv1.conv.weight",
                                        "per_channel_statistics.mean-of-means",
                                        "per_channel_statistics.std-of-means"};
    write_tensors(folder, name, 2, mean, deviation);
}

/* Flux 2's files have the variances of a batch norm. */
Test(statistics, variances)
{
    char folder[] = "/tmp/weft_statistics_XXXXXX";
    static const float mean[4] = {0.5f, -1, 2, 3}, variance[4] = {3.75f, 8.75f, 0.75f, 0};
    static const char *const name[3] = {"bn.other", "bn.running_mean", "bn.running_var"};
    cr_assert(mkdtemp(folder));
    weft_model model = model_of("{\"_class_name\":\"AutoencoderKLFlux2\",\"latent_channels\":1,"
                                "\"batch_norm_eps\":0.25}");
    write_tensors(folder, name, 4, mean, variance);
    cr_assert_eq(weft_key_mapping_statistics(folder, &model), WEFT_OK, "%s", weft_error_message());
    const weft_grid grid = weft_model_grid(&model);
    cr_expect_eq(grid.channels, 4);
    cr_expect_eq(grid.mean[3], 3);
    cr_expect_eq(grid.deviation[0], 2);
    cr_expect_eq(grid.deviation[1], 3);
    cr_expect_eq(grid.deviation[3], 0.5);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

/* LTX-Video's files have them among the weights, its configs not. */
Test(statistics, in_the_file)
{
    char folder[] = "/tmp/weft_statistics_XXXXXX";
    cr_assert(mkdtemp(folder));
    weft_model model = model_of("{\"_class_name\":\"AutoencoderKLLTXVideo\",\"latent_channels\":2,"
                                "\"scaling_factor\":2}");
    write_file(folder, (const float[]){3, 4});
    cr_assert_eq(weft_key_mapping_statistics(folder, &model), WEFT_OK, "%s", weft_error_message());
    const weft_grid grid = weft_model_grid(&model);
    cr_expect_eq(grid.mean[1], -1);
    cr_expect_eq(grid.deviation[0], 1.5);
    write_file(folder, (const float[]){3, 0});
    cr_expect_eq(weft_key_mapping_statistics(folder, &model), WEFT_E_FORMAT);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
    cr_expect_eq(weft_key_mapping_statistics(folder, &model), WEFT_OK); /* nothing to read */
}

/* Positions of tiles by the rules of the references, and refused sizes. */
#include "model/tiling.h"

#include "../model_of.h"

#include <criterion/criterion.h>
#include <string.h>

static const char wan[] = "{\"_class_name\":\"AutoencoderKLWan\"}";
static const char hunyuan[] = "{\"_class_name\":\"AutoencoderKLHunyuanVideo\"}";

static weft_tiling tiling_of(const char *config, weft_tile tile, bool decoder, int64_t frames,
                             int64_t height, int64_t width)
{
    const weft_model model = model_of(config);
    weft_tiling t;
    cr_assert_eq(weft_tiling_of(&model, &tile, decoder, (int64_t[]){frames, height, width}, &t),
                 WEFT_OK, "%s", weft_error_message());
    return t;
}

/* Tiles begin at every step while there is something left, and are cut at the border. */
Test(tiling, steps_to_the_border)
{
    const weft_tiling t = tiling_of(
        wan, (weft_tile){.on = true, .size = {0, 48, 40}, .step = {0, 32, 24}}, true, 5, 72, 88);
    cr_expect(t.in_space && !t.in_time);
    static const int64_t rows[] = {6, 5, 1}, columns[] = {5, 5, 5, 2};
    cr_assert_eq(weft_tiling_count(&t, 1), 3);
    cr_assert_eq(weft_tiling_count(&t, 2), 4);
    for (int64_t i = 0; i < 3; i++)
        cr_expect_eq(weft_tiling_length(&t, 1, i), rows[i]);
    for (int64_t i = 0; i < 4; i++)
        cr_expect_eq(weft_tiling_length(&t, 2, i), columns[i]);
    cr_expect_eq(weft_tiling_first(&t, 1, 2), 8);
    cr_expect_eq(t.side[1].blend, 16);
    cr_expect_eq(t.side[1].out_step, 32);
}

/* A frame that is not larger than a tile is one tile, and so is every frame without tiling. */
Test(tiling, whole)
{
    const weft_tile on = {.on = true}, off = {0};
    cr_expect(!tiling_of(wan, on, true, 5, 256, 256).in_space);
    cr_expect(tiling_of(wan, on, true, 5, 256, 264).in_space);
    cr_expect(!tiling_of(wan, off, true, 5, 720, 1280).in_space);
    /* the family's own overlap, as a share of another size */
    const weft_tiling t =
        tiling_of(wan, (weft_tile){.on = true, .size = {0, 128, 128}}, true, 5, 256, 256);
    cr_expect_eq(t.side[1].out_step, 96);
}

/* HunyuanVideo's is cut in time above 4 latent frames, asked or not. */
Test(tiling, of_time)
{
    cr_expect(!tiling_of(hunyuan, (weft_tile){0}, true, 13, 64, 64).in_time);
    const weft_tiling t = tiling_of(hunyuan, (weft_tile){0}, true, 29, 64, 64);
    cr_expect(t.in_time && !t.in_space);
    cr_expect_eq(weft_tiling_count(&t, 0), 3);
    cr_expect_eq(weft_tiling_length(&t, 0, 0), 5);
    cr_expect_eq(weft_tiling_length(&t, 0, 2), 2);
    cr_expect_eq(weft_tiling_made(&t, 0, 5), 17);
    const weft_tiling e = tiling_of(hunyuan, (weft_tile){0}, false, 29, 64, 64);
    cr_expect_eq(weft_tiling_count(&e, 0), 3);
    cr_expect_eq(weft_tiling_length(&e, 0, 0), 17);
    cr_expect_eq(weft_tiling_made(&e, 0, 17), 5);
}

static void refused(const char *config, weft_tile tile, bool decoder, weft_message_class kind,
                    const char *figures)
{
    const weft_model model = model_of(config);
    weft_tiling t;
    tile.on = true;
    cr_expect_neq(weft_tiling_of(&model, &tile, decoder, (int64_t[]){5, 256, 256}, &t), WEFT_OK);
    cr_expect_eq(weft_error_class(), kind, "%s", weft_error_message());
    cr_expect(strstr(weft_error_message(), figures), "%s", weft_error_message());
}

Test(tiling, what_cannot_be)
{
    refused(wan, (weft_tile){.size = {0, 4, 64}}, true, WEFT_MSG_ARGUMENT_INVALID,
            "tiles of 4 in height");
    refused(wan, (weft_tile){.size = {0, 64, 64}, .step = {0, 80, 64}}, true,
            WEFT_MSG_ARGUMENT_INVALID, "80");
    refused(wan, (weft_tile){.size = {0, 64, 64}, .step = {0, 44, 48}}, false,
            WEFT_MSG_ARGUMENT_INVALID, "multiples of 8");
    refused(wan, (weft_tile){.size = {16, 64, 64}}, true, WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
            "AutoencoderKLWan");
}

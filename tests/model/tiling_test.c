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

/* Allegro is always tiled: 24 frames and 320x320 pixels at steps of 16, 200 and 240. The last tile is
 * the first one that reaches the border. */
Test(tiling, of_a_reference_that_always_tiles)
{
    static const char allegro[] = "{\"_class_name\":\"AutoencoderKLAllegro\"}";
    const weft_tiling t = tiling_of(allegro, (weft_tile){0}, true, 88, 720, 1280);
    cr_expect(t.in_time && t.in_space && t.sums);
    static const int64_t counts[3] = {5, 3, 5}, sizes[3] = {6, 40, 40}, steps[3] = {4, 25, 30},
                         overlaps[3] = {8, 120, 80};
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(weft_tiling_count(&t, i), counts[i], "side %d", i);
        cr_expect_eq(t.side[i].size, sizes[i], "side %d", i);
        cr_expect_eq(t.side[i].step, steps[i], "side %d", i);
        cr_expect_eq(t.side[i].blend, overlaps[i], "side %d", i);
        cr_expect_eq(weft_tiling_length(&t, i, counts[i] - 1), sizes[i], "side %d", i);
    }
    const weft_tiling encoder = tiling_of(allegro, (weft_tile){0}, false, 88, 720, 1280);
    cr_expect_eq(weft_tiling_count(&encoder, 0), 5);
    cr_expect_eq(encoder.side[0].size, 24);
    cr_expect_eq(encoder.side[1].blend, 15);
    /* a rest after the last complete tile */
    const weft_tiling rest = tiling_of(allegro, (weft_tile){0}, true, 28, 328, 320);
    cr_expect_eq(weft_tiling_count(&rest, 0), 2);
    cr_expect_eq(weft_tiling_length(&rest, 0, 1), 3);
    cr_expect_eq(weft_tiling_count(&rest, 1), 2);
    cr_expect_eq(weft_tiling_length(&rest, 1, 1), 16);
    cr_expect_eq(weft_tiling_count(&rest, 2), 1);
    const weft_tiling off = tiling_of(allegro, (weft_tile){.off = true}, true, 88, 720, 1280);
    cr_expect(off.in_time && !off.in_space);
    cr_expect(!tiling_of(allegro, (weft_tile){0}, true, 24, 320, 320).in_time);
    static const char small[] = "{\"_class_name\":\"AutoencoderKLAllegro\",\"sample_size\":256}";
    cr_expect_eq(tiling_of(small, (weft_tile){0}, true, 88, 512, 512).side[2].step, 22);
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

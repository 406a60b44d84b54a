/* CLIP's preprocessing of images, compared with transformers' CLIPImageProcessor
 * (tools/golden_identity_images.py): the shorter side resized to 28 pixels with antialiasing, the
 * central square, mean and deviation. Images are wide, tall, smaller and larger than the square.
 * Resized colours are rounded to 8 bits as by Pillow, so the results with Pillow are equal up to
 * the rounding of f32. With torchvision, whose weights are rounded, some colours of 8 bits differ
 * by one level. */
#include "video/clip_processor.h"

#include "base/memory.h"
#include "format/tensors/tensors.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 28 };

static weft_tensors *golden(const char *name, char path[600])
{
    const char *source = getenv("SRC");
    weft_tensors *file;
    snprintf(path, 600, "%s/tests/golden/identity/%s", source ? source : ".", name);
    cr_assert_eq(weft_tensors_open(path, &file), WEFT_OK, "%s", weft_error_message());
    return file;
}

/* Largest difference of an image's pixels from the golden tensor, and the share of pixels that
 * differ. */
static double difference(const weft_clip_processor *p, const weft_tensors *file, const char *label,
                         const char *name, double *share)
{
    char key[64];
    snprintf(key, sizeof key, "rgb.%s", name);
    const weft_stored_tensor *rgb = weft_tensors_find(file, key);
    snprintf(key, sizeof key, "%s.%s", label, name);
    const weft_stored_tensor *pixels = weft_tensors_find(file, key);
    float made[SIDE * SIDE * 3], wanted[SIDE * SIDE * 3];
    double most = 0, differing = 0;
    cr_assert(rgb && pixels && pixels->count == SIDE * SIDE * 3, "%s", name);
    cr_assert_eq(weft_clip_processor_run(p, rgb->data, rgb->dim[1], rgb->dim[0], made), WEFT_OK);
    weft_tensor_to_f32(pixels, wanted);
    for (int i = 0; i < SIDE * SIDE * 3; i++) {
        const double off = fabs((double)made[i] - (double)wanted[i]);
        most = fmax(most, off);
        differing += off > 1e-5;
    }
    *share = differing / (SIDE * SIDE * 3);
    return most;
}

Test(clip_processor, pixels_equal_those_of_the_reference)
{
    static const char *const names[] = {"wide", "tall", "small", "same", "near", "noise"};
    const double level = 1 / (255 * 0.26130258); /* of 8 bits, divided by the least deviation */
    weft_clip_processor p;
    char path[600], config[600];
    const char *source = getenv("SRC");
    weft_tensors *file = golden("processor.safetensors", path);
    snprintf(config, sizeof config,
             "%s/tests/golden/identity/image_encoder/preprocessor_config.json",
             source ? source : ".");
    cr_assert_eq(weft_clip_processor_read(config, SIDE, &p), WEFT_OK, "%s", weft_error_message());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double share, most = difference(&p, file, "pixels", names[i], &share);
        cr_expect(most < 1e-6, "%s: pixels are off by up to %g", names[i], most);
        most = difference(&p, file, "torchvision", names[i], &share);
        cr_expect(most < 1.001 * level && share < 0.02,
                  "%s: pixels are off by up to %g, %g %% differ", names[i], most, 100 * share);
    }
    weft_tensors_close(file);
}

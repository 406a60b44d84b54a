/* Weights that are rounded to int8 while they are loaded: bitwise the rounding of each row, times
 * the factors of the columns, on any number of threads. */
#include "base/fs.h"
#include "exec/store/weights.h"
#include "format/tensors/quant_blocks.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"

#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

/* More elements than are rounded at a time, and rows that are left over. */
enum { ROWS = 1301, COLUMNS = 256, BLOCK = 64, BLOCKS = COLUMNS / BLOCK, BYTES = BLOCK + 2 };

static weft_graph *graph_of(weft_dtype dtype, weft_shape shape)
{
    weft_graph *g = weft_graph_create();
    const weft_value w =
        weft_param(g, "net.weight", dtype, shape, (weft_init){WEFT_INIT_NORMAL, 0.5});
    weft_output(g, "w", w);
    return g;
}

/* Writes random weights to `folder`, and the rounding of the weights times factor[COLUMNS] to
 * packed[ROWS * BLOCKS * BYTES]. */
static void save(const char *folder, const float *factor, unsigned char *packed)
{
    float row[COLUMNS];
    weft_graph *g = graph_of(WEFT_F32, WEFT_SHAPE(ROWS, COLUMNS));
    weft_store *store = weft_store_create();
    cr_assert_eq(weft_store_init(store, g, 3), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_weights_save(store, NULL, g, "net.", folder, "model", WEFT_F32, 0), WEFT_OK,
                 "%s", weft_error_message());
    const float *w = weft_store_find(store, "net.weight")->data;
    for (int64_t n = 0; n < ROWS; n++) {
        for (int k = 0; k < COLUMNS; k++)
            row[k] = w[n * COLUMNS + k] * factor[k];
        weft_int8_pack(row, BLOCKS, BLOCK, packed + n * BLOCKS * BYTES);
    }
    weft_store_free(store);
    weft_graph_free(g);
}

Test(int8_weights, are_the_same_on_any_number_of_threads)
{
    static unsigned char packed[ROWS * BLOCKS * BYTES];
    char folder[] = "/tmp/weft-int8-XXXXXX";
    float factor[COLUMNS];
    for (int k = 0; k < COLUMNS; k++)
        factor[k] = ldexpf(1.25f, k % 9 - 4);
    cr_assert_not_null(mkdtemp(folder));
    save(folder, factor, packed);
    for (int threads = 1; threads <= 3; threads++) {
        weft_graph *g = graph_of(WEFT_U8, WEFT_SHAPE(ROWS, BLOCKS, BYTES));
        weft_store *store = weft_store_create();
        weft_tensors *file;
        omp_set_num_threads(threads);
        cr_assert_eq(weft_store_init(store, g, 0), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(weft_tensors_open(folder, &file), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(weft_tensors_scale_columns(file, "weight", factor), WEFT_OK, "%s",
                     weft_error_message());
        cr_assert_eq(weft_weights_load(store, g, "net.", file, false), WEFT_OK, "%s",
                     weft_error_message());
        cr_expect_arr_eq(weft_store_find(store, "net.weight")->data, packed, sizeof packed);
        weft_store_free(store);
        weft_graph_free(g);
    }
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

"""The change by which tools/golden_bits --prove shows that it sees a changed bit: the first element
of every matrix that is drawn at the start moves by one unit in the last place."""

ONE_BIT = (
    "model/parameters.cpp",
    "values[i] = static_cast<float>(std * numbers[k]);\n",
    """values[i] = static_cast<float>(std * numbers[k]);
      if (element + i == 0) {
        values[i] = __builtin_nextafterf(values[i], 1.0F);
      }
""",
)

import sys

from flopcalc.cli import main

sys.exit(main())
